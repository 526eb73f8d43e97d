"""Work on a thread beside a block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(name: str, work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `work` on a daemon thread called `name`; leaving sets the event that it is given, and waits for its end."""
    closing = threading.Event()
    thread = threading.Thread(target=work, args=[closing], name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join()
