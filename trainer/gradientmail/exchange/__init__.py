"""Parameter exchange: what the training loop tells of its steps.

A session is a context manager round the training loop, told of every optimizer step. `Solo` is the
session of a node that exchanges nothing: one node on its own, or the baseline without exchange.
"""

from gradientmail.exchange.base import TrainingSession
from gradientmail.exchange.solo import Solo

__all__ = ["Solo", "TrainingSession"]
