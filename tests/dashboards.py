"""The shipped dashboards as their readers see them: Grafana's JSON, panel by panel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "charts" / "gradientmail" / "files" / "dashboards"
RUN, FLEET = "gradientmail-run", "gradientmail-fleet"


@dataclass(frozen=True)
class Query:
    """One expression of a panel, as Grafana sends it once its variables have values."""

    dashboard: str
    panel: str
    name: str
    """The series' legend, or the reference in a table."""
    expression: str
    least_window: str
    """The panel's smallest window for rates; empty if it sets none."""

    def with_values(self, *, namespace: str, run: str, shown: str, window: str) -> str:
        """Return the expression for a run, the range of time shown, and the window of rates."""
        values = {
            "$namespace": namespace,
            "$run": run,
            "$__range": shown,
            "$__rate_interval": self.least_window or window,
        }
        return re.sub(r"\$\w+", lambda found: values[found.group()], self.expression)

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel}: {self.name}"


def load(uid: str) -> dict[str, Any]:
    """Return a dashboard's JSON."""
    board: dict[str, Any] = json.loads((FOLDER / f"{uid}.json").read_text(encoding="utf-8"))
    return board


def panels(uid: str) -> list[Mapping[str, Any]]:
    """Return a dashboard's panels without its headings."""
    return [panel for panel in load(uid)["panels"] if panel["type"] != "row"]


def queries(*uids: str) -> Iterator[Query]:
    """Yield every query of dashboards, from the top."""
    for uid in uids or (RUN, FLEET):
        for panel in panels(uid):
            for target in panel["targets"]:
                name = target["legendFormat"] if target.get("format") != "table" else target["refId"]
                yield Query(uid, panel["title"], name, target["expr"], panel.get("interval", ""))


def query(uid: str, panel: str, name: str = "") -> Query:
    """Return the query of a panel, by its legend where there are several."""
    (found,) = [each for each in queries(uid) if each.panel == panel and name in ("", each.name)]
    return found
