"""The trainer: tasks, data readers, the training loop and the program that each node runs.

Importing this package does not import torch. Neither do `data`, `node`, `interruption`, `farewell`, `slowness` and
`logs`, so that a mistake in the manifest is told before torch is imported, which takes seconds.
"""
