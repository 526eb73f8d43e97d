"""Patterns of asynchronous training over a mailbox."""
