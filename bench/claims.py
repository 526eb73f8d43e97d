"""Requests and listed keys per claim: exact counts on a store in memory."""

from __future__ import annotations

import threading
from collections import Counter

from bench.figures import Figure, show
from gradientmail import Unit, first_lane, grid
from gradientmail.mailbox import Request
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.patterns.shared_queue import shared_queue


def one_batch(unit: Unit) -> list[Unit]:
    """Load a unit as a single batch."""
    return [unit]


def uncontended() -> Figure:
    """Count the requests of one node alone."""
    requests: Counter[str] = Counter()
    units = grid(steps=4000, unit_steps=20, lanes=4)
    box = MemoryStore(observe=lambda request: requests.update([request.operation]))
    with shared_queue(units, mailbox=box, learner_id="only", load=one_batch, receipts=False) as batches:
        claims = len(list(batches))
    requests.subtract({"put_if_absent": 1, "get": 1})  # the registration of the learner, once per run
    per_claim = {operation: count / claims for operation, count in sorted(requests.items())}
    text = ", ".join(f"{count:g} {operation}" for operation, count in per_claim.items())
    return Figure(
        f"requests per uncontended claim, {claims} units",
        text,
        "1 list page, 1 create, 1 read",
        per_claim == {"get": 1.0, "list": 1.0, "put_if_absent": 1.0},
    )


class Shared(MemoryStore):
    """Counts list pages and the keys in them."""

    def __init__(self) -> None:
        super().__init__(observe=self.count)
        self.pages: list[int] = []

    def count(self, request: Request) -> None:
        """Note a page."""
        if request.operation == "list":
            self.pages.append(request.keys)


def listed(units: int, nodes: int) -> tuple[float, int]:
    """Return the mean and the largest number of keys listed per claim, nodes as threads."""
    box, mapping = Shared(), grid(steps=units // 4, unit_steps=1, lanes=4)

    def node(index: int) -> None:
        mine = first_lane(mapping, index)
        with shared_queue(mine, mailbox=box, learner_id=f"{index}", load=one_batch, receipts=False) as batches:
            for _ in batches:
                pass

    threads = [threading.Thread(target=node, args=(index,)) for index in range(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(box.pages) / len(mapping), max(box.pages)


def main() -> None:
    """Count and print."""
    figures = [uncontended()]
    means = {units: listed(units, 4) for units in (800, 10_000, 100_000)}
    text = ", ".join(f"{units:,}: {mean:.2f} (at most {largest})" for units, (mean, largest) in means.items())
    grown = means[100_000][0] <= 2 * max(1.0, means[800][0])
    figures.append(Figure("keys listed per claim, 4 nodes, by units", text, "does not grow", grown))
    show(figures)


if __name__ == "__main__":
    main()
