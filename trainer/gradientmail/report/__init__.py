"""What a run came to, read from its mailbox: status, figures, table and picture."""
