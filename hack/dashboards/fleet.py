"""The dashboard of all runs and of the controller."""

from __future__ import annotations

from hack.dashboards.expressions import (
    ALL_RUNS,
    WINDOW,
    nodes,
    progress,
    rate,
    units_done,
    units_in_all,
    waiting,
)
from hack.dashboards.model import ALARM, WARN, Dashboard, Panel, Query, Row, Threshold, Variable
from hack.dashboards.words import NO_CONTROLLER, NO_ERROR, NO_TRAINER, RUN_NAME

RUN_KEY = "namespace, run"
NO_RUN = "There is no run in these namespaces, or neither controller nor trainers are scraped."


def _run_gauge(name: str, matching: str = "") -> str:
    chosen = f"{ALL_RUNS}, {matching}" if matching else ALL_RUNS
    return f"max by ({RUN_KEY}) ({name}{{{chosen}}})"


PHASES = f"max by (namespace, run, phase) (gradientrun_phase{{{ALL_RUNS}}}) == 1"

ALL = Row(
    "All runs",
    (
        Panel(
            "Runs by phase",
            "number",
            "none",
            (Query(f"count by (phase) ({PHASES})", "{{phase}}"),),
            "How many runs are in each phase.",
            NO_CONTROLLER,
            height=4,
        ),
        Panel(
            "Stalled runs",
            "number",
            "none",
            (Query(f"sum({_run_gauge('gradientrun_stalled')})", "stalled"),),
            "Runs of which a node cannot run: no room, no image, no secret. `kubectl get grun` and the condition "
            "Stalled give the kubelet's words.",
            NO_CONTROLLER,
            thresholds=(Threshold(1, WARN),),
            width=4,
            height=4,
        ),
        Panel(
            "Lost units",
            "number",
            "none",
            (Query(f"""sum({_run_gauge("gradientrun_units", 'state="lost"')})""", "lost"),),
            "Units lost by all runs that exist.",
            NO_CONTROLLER,
            thresholds=(Threshold(1, WARN),),
            width=4,
            height=4,
        ),
        Panel(
            "Nodes that answer",
            "number",
            "none",
            (Query(nodes(ALL_RUNS), "nodes"),),
            "Trainers that Prometheus reaches.",
            NO_TRAINER,
            width=4,
            height=4,
        ),
        Panel(
            "Throughput",
            "number",
            "short",
            (Query(rate("gradientmail_samples_total", ALL_RUNS, ""), "tokens per second"),),
            "Tokens per second of all runs together.",
            NO_TRAINER,
            width=4,
            height=4,
        ),
        Panel(
            "Runs",
            "table",
            "none",
            (
                Query(PHASES, "phase"),
                Query(progress(ALL_RUNS, RUN_KEY), "progress", "percentunit"),
                Query(units_done("consumed", ALL_RUNS, RUN_KEY), "consumed", "none"),
                Query(units_in_all(ALL_RUNS, RUN_KEY), "units", "none"),
                Query(_run_gauge("gradientrun_units", 'state="lost"'), "lost", "none"),
                Query(nodes(ALL_RUNS, RUN_KEY), "nodes", "none"),
                Query(rate("gradientmail_samples_total", ALL_RUNS, RUN_KEY), "tokens/s", "short"),
                Query(_run_gauge("gradientrun_estimated_remaining_seconds"), "time left", "s"),
                Query(_run_gauge("gradientrun_stalled"), "stalled", "bool_yes_no"),
            ),
            "A line per run; its name leads to its own dashboard. Nodes and speed are empty once no trainer answers.",
            NO_RUN,
            width=24,
            height=9,
            key="run",
            links_to_run=True,
        ),
    ),
)

COMPARED = Row(
    "Runs compared",
    (
        Panel(
            "Progress by run",
            "lines",
            "percentunit",
            (Query(progress(ALL_RUNS, RUN_KEY), RUN_NAME),),
            "Consumed share of each run's units. A flat line below 100 % is a run that stands still.",
            NO_RUN,
            maximum=1,
        ),
        Panel(
            "Throughput by run",
            "stacked",
            "short",
            (Query(rate("gradientmail_samples_total", ALL_RUNS, RUN_KEY), RUN_NAME),),
            "Tokens per second of each run.",
            NO_TRAINER,
            axis="tokens per second",
        ),
        Panel(
            "Nodes by run",
            "lines",
            "none",
            (
                Query(nodes(ALL_RUNS, RUN_KEY), RUN_NAME),
                Query(_run_gauge("gradientrun_nodes", 'state="wanted"'), RUN_NAME + ", wanted"),
            ),
            "Trainers that answer, beside those that each run asks for.",
            NO_TRAINER,
            axis="nodes",
        ),
        Panel(
            "Share of time waiting for data",
            "lines",
            "percentunit",
            (Query(f"max by ({RUN_KEY}) ({waiting(ALL_RUNS, 'namespace, run, node')})", RUN_NAME),),
            "Of the node of each run that waits most.",
            NO_TRAINER,
            thresholds=(Threshold(0.05, WARN), Threshold(0.2, ALARM)),
            maximum=1,
        ),
        Panel(
            "Mailbox errors by run",
            "lines",
            "reqps",
            (
                Query(
                    rate(
                        "gradientmail_mailbox_requests_total",
                        ALL_RUNS,
                        RUN_KEY,
                        matching='outcome=~"unavailable|error"',
                    ),
                    RUN_NAME,
                ),
            ),
            "Requests that failed after their retries. Where several runs show them at once, it is the store.",
            NO_ERROR,
            thresholds=(Threshold(0.001, WARN),),
        ),
        Panel(
            "Lost units by run",
            "lines",
            "none",
            (Query(_run_gauge("gradientrun_units", 'state="lost"'), RUN_NAME),),
            "Units whose owner is gone.",
            NO_CONTROLLER,
            axis="units",
        ),
    ),
)

CONTROLLER = Row(
    "Controller",
    (
        Panel(
            "Controllers",
            "number",
            "none",
            (Query("count(gradientrun_reconcile_seconds_count) or vector(0)", "answering"),),
            "One is right. Runs go on while there is none, but nothing is started, counted or ended.",
            NO_CONTROLLER,
            thresholds=(Threshold(0, ALARM), Threshold(1, "green"), Threshold(2, WARN)),
            width=4,
        ),
        Panel(
            "Reconciles",
            "lines",
            "ops",
            (Query(f"sum(rate(gradientrun_reconcile_seconds_count{WINDOW}))", "reconciles"),),
            "How often the controller looks at a run: every few seconds at one that is running, seldom at the others.",
            NO_CONTROLLER,
            width=10,
        ),
        Panel(
            "Time of a reconcile",
            "lines",
            "s",
            tuple(
                Query(
                    f"histogram_quantile({of}, sum by (le) (rate(gradientrun_reconcile_seconds_bucket{WINDOW})))", name
                )
                for of, name in ((0.5, "median"), (0.95, "95 %"), (0.99, "99 %"))
            ),
            "Reading the nodes' counts included; a trainer that does not answer costs two seconds.",
            NO_CONTROLLER,
            thresholds=(Threshold(5, WARN),),
            width=10,
        ),
        Panel(
            "Reconcile errors",
            "lines",
            "ops",
            (Query(f"sum by (kind) (rate(gradientrun_reconcile_errors_total{WINDOW}))", "{{kind}}"),),
            "conflict is harmless: someone changed the object meanwhile. unavailable: the API server is away. refused "
            "and fault are for the controller's log.",
            NO_CONTROLLER,
            thresholds=(Threshold(0.1, WARN),),
        ),
        Panel(
            "Oldest run that is due",
            "lines",
            "s",
            (Query("max(gradientrun_queue_wait_seconds)", "waiting"),),
            "How long the run that has waited longest for the controller has waited. Near 0 while it keeps up; after "
            "five minutes the controller restarts itself.",
            NO_CONTROLLER,
            thresholds=(Threshold(30, WARN), Threshold(300, ALARM)),
        ),
        Panel(
            "Answers of the API server",
            "lines",
            "reqps",
            (Query(f"sum by (verb, code) (rate(gradientrun_kubernetes_requests_total{WINDOW}))", "{{verb}} {{code}}"),),
            "Watches aside. 409 is harmless, 403 means that the controller's role lacks something.",
            NO_CONTROLLER,
        ),
    ),
)

FLEET = Dashboard(
    "gradientmail-fleet",
    "GradientMail / Fleet",
    "All runs: phase, progress, nodes, throughput; and the controller's health.",
    (Variable("namespace", "Namespace", '{__name__=~"gradientmail_units|gradientrun_phase"}', many=True),),
    (ALL, COMPARED, CONTROLLER),
)
