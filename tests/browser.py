"""Debian's Chromium without a window, driven over its own protocol (DevTools)."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import websocket

from tests.waiting import until

LIMIT_SECONDS = 60.0
INSTALL_SECONDS = 900.0
ROOT = Path(__file__).parents[1]
INSTALL = (
    "from pathlib import Path; from testcluster import packages; "
    "packages.install(['chromium'], Path('build/chromium.log').absolute())"
)
OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--remote-debugging-port=0",
)


def chromium() -> str:
    """Return the program; Debian's package is installed where it is missing."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "hack" / "cluster")}
    subprocess.run([sys.executable, "-c", INSTALL], cwd=ROOT, env=environment, timeout=INSTALL_SECONDS, check=True)
    return "chromium"


class Tab:
    """One page of the browser, and what has happened in it."""

    def __init__(self, socket: websocket.WebSocket) -> None:
        self._socket = socket
        self._sent = 0
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": parameters}))
        while (answer := json.loads(self._socket.recv())).get("id") != self._sent:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, url: str) -> None:
        """Go to a page and wait until it has loaded."""
        failed = self.call("Page.navigate", url=url).get("errorText")
        assert failed is None, failed
        self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        until(
            lambda: self.evaluate(f"Boolean({expression})"),
            expression,
            seen=lambda: self.text()[:2000],
            every_seconds=0.05,
        )

    def text(self) -> str:
        """Return the text that a reader sees."""
        return str(self.evaluate("document.body.innerText"))

    def shape(self, width: int, height: int, *, dark: bool = False) -> None:
        """Give the page a size in CSS pixels and a colour scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        """Write what is seen as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """Return errors and warnings of the console, uncaught exceptions, and what a policy has refused."""
        self.call("Runtime.evaluate", expression="0")  # events that are on their way come first
        wrong = []
        for event in self.events:
            match event:
                case {"method": "Log.entryAdded", "params": {"entry": entry}} if entry["level"] in ("error", "warning"):
                    wrong.append(f"{entry['text']} {entry.get('url', '')}")
                case {"method": "Runtime.exceptionThrown", "params": parameters}:
                    wrong.append(json.dumps(parameters))
                case {"method": "Runtime.consoleAPICalled", "params": {"type": "error" | "warning", "args": arguments}}:
                    wrong.append(json.dumps(arguments))
        return wrong

    def requests(self) -> list[str]:
        """Return the URLs that the page has asked for, in order."""
        self.call("Runtime.evaluate", expression="0")
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [str(each["request"]["url"]) for each in sent]


class Browser:
    """A running browser."""

    def __init__(self, port: int) -> None:
        self._port = port

    @contextmanager
    def tab(self) -> Iterator[Tab]:
        """Give a fresh tab; close it after the block."""
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as answer:
            url = json.load(answer)["webSocketDebuggerUrl"]
        with closing(websocket.create_connection(url, timeout=LIMIT_SECONDS, suppress_origin=True)) as socket:
            tab = Tab(socket)
            yield tab
            tab.call("Page.close")


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start a browser with its profile in the folder; end it after the block."""
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [chromium(), *OPTIONS, *sandbox, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield Browser(_port(folder / "profile" / "DevToolsActivePort", process))
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # its children would go on writing to the profile
            process.wait()


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    def runs() -> None:
        assert process.poll() is None, (file.parents[1] / "chromium.log").read_text()

    until(lambda: file.exists() and file.read_text().count("\n"), "Chromium's port", meanwhile=runs, every_seconds=0.05)
    return int(file.read_text().splitlines()[0])
