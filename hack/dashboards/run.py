"""The dashboard of one run."""

from __future__ import annotations

from hack.dashboards.model import Dashboard, Variable
from hack.dashboards.run_store import CLAIMS, EXCHANGE, LOSSES, MAILBOX
from hack.dashboards.run_work import DATA, GLANCE, LEARNING, SHARES

SERIES = '{__name__=~"gradientmail_units|gradientrun_phase"'

RUN = Dashboard(
    "gradientmail-run",
    "GradientMail / Run",
    "One run: who takes how much, whether a GPU waits for data, when it ends, what was lost, whether the bucket is "
    "slow.",
    (
        Variable("namespace", "Namespace", SERIES + "}"),
        Variable("run", "Run", SERIES + ', namespace="$namespace"}'),
    ),
    (GLANCE, SHARES, DATA, LEARNING, CLAIMS, MAILBOX, EXCHANGE, LOSSES),
)
