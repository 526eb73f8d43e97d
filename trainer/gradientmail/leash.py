"""The leash of the nodes that `gradientmail local` starts: they leave when it is gone.

A child of `gradientmail local` holds the reading end of a pipe as its standard input. The pipe
closes when the parent ends, whatever ends it, SIGKILL included. The child then gets SIGTERM, so
that it leaves in good order, and is ended if it has not left within its grace time.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from gradientmail.exits import Exit

LEASH = "GRADIENTMAIL_LEASH_SECONDS"
"""Set by `gradientmail local`: seconds a child may take to leave once its parent is gone."""


def hold_leash() -> None:
    """End this process when its standard input closes, if its parent asked for that. Starts one daemon thread."""
    grace = os.environ.pop(LEASH, None)
    if grace is not None:
        threading.Thread(target=_follow, args=(sys.stdin.fileno(), float(grace)), name="leash", daemon=True).start()


def _follow(descriptor: int, grace_seconds: float) -> None:
    while os.read(descriptor, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_seconds)
    os._exit(Exit.FAILED)
