"""The metrics of all nodes here as one: each node's own /metrics, fetched every second over loopback.

What a node has exported last stays when it ends, so no series is lost; its counts of units and all
else that its progress holds are then those of its last word, not of its last scrape. Requests and
the histograms are as they were within a second of its end.
"""

from __future__ import annotations

import http.client
import threading
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from gradientmail.local.beside import beside
from gradientmail.metrics import Labels, TrainerMetrics
from gradientmail.progress import NodeProgress

EVERY_SECONDS = 1.0
TIMEOUT_SECONDS = 2.0
AT_ONCE = 8
LARGEST_BYTES = 4 << 20


class NodesMetrics(Collector):
    """Families of all nodes. For any thread; collecting asks no node."""

    def __init__(
        self, labels: Mapping[str, Labels], units: int, last_words: Callable[[], Mapping[str, NodeProgress]]
    ) -> None:
        self._labels, self._units, self._last_words = labels, units, last_words
        self._ports: dict[str, int] = {}
        self._scraped: dict[str, Sequence[Family]] = {}

    def listens(self, node: str, port: int) -> None:
        """Note where a node serves its metrics."""
        self._ports[node] = port

    def collect(self) -> Iterable[Family]:
        """Yield each family once, with the samples of all nodes."""
        words, scraped = self._last_words(), dict(self._scraped)
        return merged(self._of_node(node, scraped.get(node, ()), words.get(node)) for node in self._labels)

    def _of_node(self, node: str, scraped: Sequence[Family], word: NodeProgress | None) -> list[Family]:
        if word is None:
            return list(scraped)
        return with_last_word(scraped, last_families(self._labels[node], self._units, word))

    def scraping(self) -> AbstractContextManager[None]:
        """Fetch the nodes' metrics on threads of its own within the block."""
        return beside("node metrics", self._scrape_until)

    def _scrape_until(self, closing: threading.Event) -> None:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="node metrics") as pool:
            while not closing.wait(EVERY_SECONDS):
                ended = self._last_words()
                due = [(node, port) for node, port in self._ports.copy().items() if node not in ended]
                self._scraped.update(found for found in pool.map(_scrape, due) if found)


def _scrape(node_and_port: tuple[str, int]) -> tuple[str, Sequence[Family]] | None:
    """Return what a node exports; None if it does not answer, as while it ends."""
    node, port = node_and_port
    try:
        # A proxy of the environment is not for loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_SECONDS) as answer:
            text = answer.read(LARGEST_BYTES).decode()
        return node, list(text_string_to_metric_families(text))
    except (OSError, ValueError, http.client.HTTPException):
        return None


def last_families(labels: Labels, units: int, word: NodeProgress) -> list[Family]:
    """Return what a node's last word says of its metrics: nothing of requests, claims and loads. Pure."""
    families = TrainerMetrics(labels, units=units, progress=lambda: word).registry.collect()
    return [family for family in families if family.samples and family.type != "histogram"]


def with_last_word(scraped: Sequence[Family], last: Sequence[Family]) -> list[Family]:
    """Return a node's families as they were scraped, with the values of its last word instead where it has them. Pure.

    A counter never falls: where the last scrape has seen more than the last word, that stays.
    """
    kept = {family.name: family for family in scraped}
    return list((kept | {family.name: _later(family, kept.get(family.name)) for family in last}).values())


def _later(last: Family, scraped: Family | None) -> Family:
    if last.type != "counter" or scraped is None:
        return last
    samples = {tuple(sorted(sample.labels.items())): sample for sample in scraped.samples}
    for sample in last.samples:
        key = tuple(sorted(sample.labels.items()))
        if key not in samples or sample.value > samples[key].value:
            samples[key] = sample
    whole = Family(last.name, last.documentation, last.type)
    whole.samples = list(samples.values())
    return whole


def merged(nodes: Iterable[Iterable[Family]]) -> list[Family]:
    """Return the families of several nodes, each name once. Pure."""
    found: dict[str, Family] = {}
    for families in nodes:
        for family in families:
            whole = found.setdefault(family.name, Family(family.name, family.documentation, family.type))
            whole.samples.extend(family.samples)
    return list(found.values())
