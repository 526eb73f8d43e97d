"""The buffer's own promises; the shared queue's tests show the rest."""

from __future__ import annotations

import threading
import time

from gradientmail.patterns.buffer import Buffer, Delivery

PATIENCE_SECONDS = 20.0


def test_a_wait_under_way_counts_and_the_sum_never_falls() -> None:
    buffer: Buffer[str] = Buffer(8, lambda delivery: None)
    taken: list[str] = []
    taker = threading.Thread(target=lambda: taken.append(buffer.take()))
    assert buffer.wait_seconds == 0.0
    taker.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    seen = [0.0]
    while seen[-1] < 0.05 and time.monotonic() < deadline:
        seen.append(buffer.wait_seconds)
    assert taken == []
    assert seen[-1] >= 0.05
    buffer.put(Delivery("000000-0.json", 0.0), "batch")
    taker.join(PATIENCE_SECONDS)
    seen.append(buffer.wait_seconds)
    assert taken == ["batch"]
    assert seen == sorted(seen)
    assert buffer.wait_seconds == seen[-1]
