"""Parameter exchange: what the training loop tells of its steps.

A session is a context manager round the training loop, told of every optimizer step. `Session`
exchanges parameters with the other nodes of a run through the mailbox. `Solo` is the session of a
node that exchanges nothing: one node on its own, or the baseline without exchange.
"""

from gradientmail.exchange.base import TrainingSession
from gradientmail.exchange.joining import ExchangeMismatch, ExchangeUnreadable
from gradientmail.exchange.replica import Diverged
from gradientmail.exchange.session import Session
from gradientmail.exchange.solo import Solo
from gradientmail.exchange.statistics import ExchangeObserver, ExchangeStatistics

__all__ = [
    "Diverged",
    "ExchangeMismatch",
    "ExchangeObserver",
    "ExchangeStatistics",
    "ExchangeUnreadable",
    "Session",
    "Solo",
    "TrainingSession",
]
