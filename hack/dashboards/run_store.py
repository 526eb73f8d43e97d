"""Panels of a run about what nodes have in common: claims, the mailbox, the exchange; and what was lost."""

from __future__ import annotations

from hack.dashboards.expressions import (
    ONE_RUN,
    gauge,
    quantile,
    rate,
    rate_by_node,
    restarts,
    unfinished_of_the_gone,
    units,
)
from hack.dashboards.model import ALARM, WARN, Panel, Query, Row, Threshold
from hack.dashboards.words import NO_CLAIM, NO_CONTROLLER, NO_ERROR, NO_EXCHANGE, NO_TRAINER, NODE


def _exchanged(*names: str) -> tuple[Query, ...]:
    return tuple(
        Query(f"60 * {rate(f'gradientmail_exchange_{name}_total', ONE_RUN, '')}", name.replace("_", " "))
        for name in names
    )


CLAIMS = Row(
    "Claims",
    (
        Panel(
            "Time to claim a unit",
            "lines",
            "s",
            tuple(
                Query(quantile(of, "gradientmail_claim_seconds", ONE_RUN), name)
                for of, name in ((0.5, "median"), (0.95, "95 %"), (0.99, "99 %"))
            ),
            "From seeking a unit to owning it, over all nodes. It is hidden from the GPU as long as batches are ready.",
            NO_CLAIM,
            thresholds=(Threshold(5, WARN),),
        ),
        Panel(
            "Claims per minute",
            "lines",
            "none",
            (Query(f"60 * {rate_by_node('gradientmail_units_claimed_total')}", NODE),),
            "How often each node takes a unit.",
            NO_TRAINER,
            axis="claims per minute",
        ),
        Panel(
            "Conflicts per claim",
            "lines",
            "percentunit",
            (
                Query(
                    f"{rate_by_node('gradientmail_claim_conflicts_total')} / "
                    f"({rate_by_node('gradientmail_units_claimed_total')} > 0)",
                    NODE,
                ),
            ),
            "Units that a node tried and another one owned, for each that it got. A conflict costs two requests and "
            "no data. Above 1, use more lanes, so that nodes look in different places.",
            NO_CLAIM,
            thresholds=(Threshold(1, WARN),),
        ),
    ),
)

MAILBOX = Row(
    "Is the bucket slow",
    (
        Panel(
            "Mailbox latency",
            "lines",
            "s",
            (
                Query(
                    quantile(0.5, "gradientmail_mailbox_request_seconds", ONE_RUN, "operation"), "{{operation}}, median"
                ),
                Query(
                    quantile(0.95, "gradientmail_mailbox_request_seconds", ONE_RUN, "operation"), "{{operation}}, 95 %"
                ),
            ),
            "Duration of requests, retries included, over all nodes. A bucket nearby answers within 0.1 s; above 1 s, "
            "claims are slow enough to be felt with small units.",
            "No request has been made in the window of the rate.",
            thresholds=(Threshold(1, WARN), Threshold(10, ALARM)),
        ),
        Panel(
            "Mailbox requests",
            "stacked",
            "reqps",
            (Query(rate("gradientmail_mailbox_requests_total", ONE_RUN, "operation"), "{{operation}}"),),
            "Requests per second of all nodes by operation. put_if_absent and list cost some twelve times a get.",
            NO_TRAINER,
        ),
        Panel(
            "Mailbox errors",
            "lines",
            "reqps",
            (
                Query(
                    rate(
                        "gradientmail_mailbox_requests_total",
                        ONE_RUN,
                        "node, outcome",
                        matching='outcome=~"unavailable|error"',
                    ),
                    "{{node}}, {{outcome}}",
                ),
            ),
            "Requests that failed after their retries. unavailable: the store did not answer, and nodes try again. "
            "error: it refused, and what it said is in the node's log.",
            NO_ERROR,
            thresholds=(Threshold(0.001, WARN),),
        ),
    ),
)

EXCHANGE = Row(
    "Exchange of parameters",
    (
        Panel(
            "Version held",
            "lines",
            "none",
            (Query(gauge("gradientmail_exchange_version", ONE_RUN, "node"), NODE),),
            "Newest version that each node holds of any fragment. Lines climb together; a flat one is a node that "
            "adopts nothing.",
            NO_EXCHANGE,
            axis="version",
        ),
        Panel(
            "Staleness",
            "lines",
            "none",
            (Query(gauge("gradientmail_exchange_staleness_steps", ONE_RUN, "node"), NODE),),
            "Own steps between contributing to a version and adopting it. The more there are, the more a node's work "
            "is applied to parameters that have moved on.",
            NO_EXCHANGE,
            axis="steps",
        ),
        Panel(
            "Exchange traffic",
            "lines",
            "Bps",
            (
                Query(rate_by_node("gradientmail_exchange_sent_bytes_total"), "{{node}}, sent"),
                Query(rate_by_node("gradientmail_exchange_received_bytes_total"), "{{node}}, received"),
            ),
            "Parameters written to and read from the mailbox.",
            NO_EXCHANGE,
        ),
        Panel(
            "Contributions",
            "lines",
            "none",
            _exchanged("contributions", "merged", "missed", "refused"),
            "Per minute over all nodes. missed came after their round had closed and are offered again; refused were "
            "damaged or foreign and should not occur.",
            NO_EXCHANGE,
            axis="per minute",
            width=6,
        ),
        Panel(
            "Versions",
            "lines",
            "none",
            _exchanged("rounds_closed", "versions_adopted", "versions_skipped"),
            "Per minute over all nodes. Skipped versions were passed over for a newer one: a node far behind the "
            "others.",
            NO_EXCHANGE,
            axis="per minute",
            width=6,
        ),
        Panel(
            "Time blocked by the exchange",
            "lines",
            "percentunit",
            (Query(rate_by_node("gradientmail_exchange_blocked_seconds_total"), NODE),),
            "Part of its time that the training loop spends in the exchange. Reading and writing happen elsewhere, so "
            "it stays near 0.",
            NO_EXCHANGE,
            thresholds=(Threshold(0.05, WARN),),
            width=6,
        ),
        Panel(
            "Exchange requests",
            "lines",
            "reqps",
            (Query(rate_by_node("gradientmail_exchange_requests_total"), NODE),),
            "Requests to the mailbox that the exchange makes; they are part of those above.",
            NO_EXCHANGE,
            width=6,
        ),
    ),
)

LOSSES = Row(
    "What was lost",
    (
        Panel(
            "Lost units over time",
            "lines",
            "none",
            (
                Query(units("lost", ONE_RUN), "lost"),
                Query(f"max(gradientrun_lost_units_limit{{{ONE_RUN}}})", "limit: spec.maxLostUnits"),
            ),
            "Units whose owner is gone. Above the limit the run fails.",
            NO_CONTROLLER,
            axis="units",
        ),
        Panel(
            "Unfinished units of nodes that are gone",
            "lines",
            "none",
            (Query(unfinished_of_the_gone(ONE_RUN), NODE),),
            "What each ended process owned and had not finished at its last scrape. After a kill it is what the node "
            "took with it; after a normal end it is what it finished since that scrape.",
            "Every process that has been seen in the time shown still answers.",
            axis="units",
        ),
        Panel(
            "Restarts by node",
            "lines",
            "none",
            (Query(restarts(ONE_RUN), NODE),),
            "How often a node was started again. Why is in the run's events: `kubectl describe grun`.",
            NO_TRAINER,
            axis="restarts",
            thresholds=(Threshold(1, WARN),),
        ),
    ),
)
