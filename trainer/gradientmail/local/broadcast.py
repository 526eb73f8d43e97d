"""What a local run shows to others than its terminal: the live page, and the metrics of its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry

from gradientmail.local.history import History
from gradientmail.local.live import Live, Subject
from gradientmail.local.scraping import NodesMetrics
from gradientmail.local.screen import Screen
from gradientmail.local.serving import Address, application, serving
from gradientmail.local.watching import RunView, record_of
from gradientmail.mailbox import Mailbox
from gradientmail.metrics import Labels
from gradientmail.runstate import RunState


@dataclass(frozen=True)
class Broadcast:
    """A page and metrics that are being served."""

    live: Live
    metrics: NodesMetrics
    address: Address

    @property
    def told(self) -> str:
        """Where they are, in a sentence."""
        open_to_all = "" if self.address.loopback else "; without a password, for all who reach this address"
        return f"live page at http://{self.address}/, metrics at http://{self.address}/metrics{open_to_all}"

    def note(self, node: str, text: str) -> None:
        """Take in a line of a node's output."""
        match record_of(text):
            case {"event": "serving", "port": int(port)}:
                self.metrics.listens(node, port)

    def end(self, view: RunView, state: RunState | None) -> None:
        """Show what came of the run: how its nodes ended, and what the mailbox says if it could be read."""
        self.live.show(view)
        if state is not None:
            self.live.settle(state)


@contextmanager
def broadcast(address: Address, subject: Subject, box: Mailbox, history: History, view: RunView) -> Iterator[Broadcast]:
    """Serve within the block. Raises UserError if the address may not be used."""
    live = Live(subject, box, history, view)
    metadata = subject.manifest.metadata
    labels = {node: Labels(metadata.namespace, metadata.name, node) for node in view.nodes}
    metrics = NodesMetrics(labels, len(subject.units), live.last_words)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    site = application(live.page, registry, loopback=address.loopback)
    with live.reading(), metrics.scraping(), serving(address, site) as where:
        yield Broadcast(live, metrics, where)


class ScreenAndPage:
    """A screen that shows the page the same views."""

    def __init__(self, screen: Screen, live: Live) -> None:
        self._screen, self._live = screen, live

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._screen.__exit__(kind, error, trace)

    def show(self, view: RunView) -> None:
        """See Screen."""
        self._live.show(view)
        self._screen.show(view)

    def say(self, text: str) -> None:
        """See Screen."""
        self._screen.say(text)
