"""Running other programs: output captured or logged, failures turned into one clear sentence."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .errors import ClusterError

HEARTBEAT_SECONDS = 20.0
LINES_SHOWN = 15
LINE_LENGTH = 80


def say(message: str) -> None:
    """Tell the user what is going on; standard output is kept for answers that programs read."""
    print(message, file=sys.stderr, flush=True)


def run(
    command: Sequence[str | Path],
    *,
    timeout_seconds: float = 60.0,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a short command and return its output; raises `ClusterError` when it fails or takes too long."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, input=stdin, capture_output=True, text=True, timeout=timeout_seconds, env=environment, check=False
        )
    except FileNotFoundError:
        raise ClusterError(f"The program {words[0]!r} is missing; install it and try again.") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"`{shlex.join(words)}` did not end within {timeout_seconds:g} s.") from None
    if done.returncode != 0:
        raise ClusterError(
            f"`{shlex.join(words)}` failed ({done.returncode}): {_last_lines(done.stderr or done.stdout)}"
        )
    return done.stdout


def succeeds(command: Sequence[str | Path], *, timeout_seconds: float = 60.0) -> bool:
    """Whether a command exists, ends in time and returns 0."""
    try:
        run(command, timeout_seconds=timeout_seconds)
    except ClusterError:
        return False
    return True


def run_logged(
    what: str,
    command: Sequence[str | Path],
    log: Path,
    *,
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> None:
    """Run a long command with its output in ``log``, saying every 20 s that it still runs and its last line."""
    words = [str(word) for word in command]
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    say(f"{what} (log: {log})")
    with log.open("w") as output:
        process = _start(words, output.fileno(), environment, folder)
        try:
            _watch(process, what, log, started, timeout_seconds)
        except BaseException:
            process.kill()
            process.wait()
            raise
    if process.returncode != 0:
        tail = _last_lines(log.read_text(errors="replace"))
        raise ClusterError(f"{what} failed: `{shlex.join(words)}` returned {process.returncode}. End of {log}:\n{tail}")
    say(f"{what}: done in {time.monotonic() - started:.0f} s")


def wait_until(
    condition: Callable[[], bool], what: str, *, timeout_seconds: float, every_seconds: float = 0.1, hint: str = ""
) -> None:
    """Poll until ``condition`` holds; raises `ClusterError` naming ``what`` was awaited."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise ClusterError(f"Waited {timeout_seconds:g} s for {what}. {hint}".strip())
        time.sleep(every_seconds)


def _start(
    words: list[str], output: int, environment: Mapping[str, str] | None, folder: Path | None
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=folder
        )
    except FileNotFoundError:
        raise ClusterError(f"The program {words[0]!r} is missing; install it and try again.") from None


def _watch(process: subprocess.Popen[bytes], what: str, log: Path, started: float, timeout_seconds: float) -> None:
    while True:
        try:
            process.wait(timeout=HEARTBEAT_SECONDS)
        except subprocess.TimeoutExpired:
            elapsed = time.monotonic() - started
            if elapsed > timeout_seconds:
                raise ClusterError(f"{what} did not end within {timeout_seconds:g} s; see {log}.") from None
            say(f"{what}: {elapsed:.0f} s; {shorten(_last_lines(log.read_text(errors='replace'), 1))}")
        else:
            return


def shorten(line: str) -> str:
    """The line, cut to what a terminal shows in one row beside a name."""
    return line if len(line) <= LINE_LENGTH else f"{line[: LINE_LENGTH - 1]}…"


def _last_lines(text: str, count: int = LINES_SHOWN) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return "\n".join(lines[-count:]) or "no output"
