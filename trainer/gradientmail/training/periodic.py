"""A thread that does something every so often, and never harms the run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

logger = logging.getLogger(__name__)

JOIN_SECONDS = 5.0


class Periodic:
    """A context manager: within it `call` is called at once and every `seconds`, on a daemon thread called `name`.

    What `call` raises is logged once in a row and does not end the thread. Leaving the block waits
    for the call under way, for at most JOIN_SECONDS.
    """

    def __init__(self, name: str, seconds: float, call: Callable[[], object]) -> None:
        self._name = name
        self._seconds = seconds
        self._call = call
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        failing = False
        while True:
            try:
                self._call()
                failing = False
            except Exception as error:  # noqa: BLE001 - reporting must not end a run
                if not failing:
                    logger.warning("%s: %s; trying again every %g s", self._name, error, self._seconds)
                failing = True
            if self._closing.wait(self._seconds):
                return
