"""A node that does what its test says, with Python's library alone: hold, count, end well or badly, eat memory.

Its argument is a JSON object:

seconds    how long to run; the file /tmp/end ends it before, and so does SIGTERM, with 143
claimed    units that its last words say it has claimed
consumed   and consumed; while it runs, /metrics shows the number in /tmp/consumed for both
exit       exit code
message    why, in its last words
silent     no last words
words      these, as they are, in place of its last words
page       this, as it is, in place of its page of metrics
memory     MiB to take
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

PAGE = """gradientmail_units 1000000
gradientmail_units_claimed_total {count}
gradientmail_units_consumed_total {count}
gradientmail_step {count}
"""


class Page(http.server.BaseHTTPRequestHandler):
    instead: str | None = None

    def do_GET(self) -> None:
        counted = Path("/tmp/consumed")
        count = counted.read_text().strip() if counted.exists() else "0"
        body = (PAGE.format(count=count) if self.instead is None else self.instead).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """A line per request helps nobody."""


def main() -> int:
    told = json.loads(sys.argv[1])
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    Page.instead = told.get("page")
    server = http.server.ThreadingHTTPServer(("", 9090), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if told.get("memory"):
        print(len(b"x" * (told["memory"] << 20)))
    ends = time.monotonic() + told.get("seconds", 0)
    while time.monotonic() < ends and not Path("/tmp/end").exists() and not stopped.wait(0.1):
        pass
    code = 143 if stopped.is_set() else told.get("exit", 0)
    if "words" in told:
        Path(os.environ["GRADIENTMAIL_TERMINATION_MESSAGE"]).write_text(told["words"])
    elif not told.get("silent"):
        progress = {
            "learner": os.environ["GRADIENTMAIL_LEARNER"],
            "node": os.environ["GRADIENTMAIL_NODE"],
            "time": time.time(),
            "phase": {0: "finished", 143: "stopped"}.get(code, "failed"),
            "claimed": told.get("claimed", 0),
            "consumed": told.get("consumed", 0),
            "message": "stopped by SIGTERM" if code == 143 else told.get("message", ""),
        }
        Path(os.environ["GRADIENTMAIL_TERMINATION_MESSAGE"]).write_text(json.dumps(progress))
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
