"""The trainer: tasks, data readers, the training loop and the program that each node runs.

Importing this package, or `training.data`, does not import torch; `loop`, `task` and `tasks` do.
"""
