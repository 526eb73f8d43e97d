"""The dashboards' queries over a real run: each answers, with figures that agree with the bucket."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.dashboards import FLEET, RUN, Query, queries, query
from tests.integration.observability.conftest import RULES
from tests.integration.observability.scene import (
    NAME,
    NAMESPACE,
    PACES,
    STEPS,
    TOKENS_PER_BATCH,
    UNIT_STEPS,
    UNITS_BELOW_FIRST_LIMIT,
    WINDOW,
    Scene,
    per_node,
)

pytestmark = pytest.mark.timeout(900)  # for machines that are busy; the scene takes half a minute on one that is not

SHOWN = "1h"
OUTAGE = "20s"
"""The window of rates that looks at the outage: a request fails for good once in about ten seconds."""
UNITS_IN_ALL = STEPS // UNIT_STEPS * 2
NODES = {"a-0", "b-0", "c-0"}


def asked(query: Query, window: str = WINDOW) -> str:
    return query.with_values(namespace=NAMESPACE, run=NAME, shown=SHOWN, window=window)


def by_node(scene: Scene, panel: str, name: str = "", *, at: float) -> dict[str, float]:
    return scene.prometheus.by("node", asked(query(RUN, panel, name)), at)


def value(scene: Scene, panel: str, name: str = "", *, at: float, board: str = RUN) -> float:
    found = scene.prometheus.value(asked(query(board, panel, name)), at)
    assert found is not None, f"{panel} has no value"
    return found


def counted(scene: Scene, what: str, *, at: float) -> dict[str, float]:
    """Return a counter by node, over all its processes. All were seen before their first batch."""
    latest = f"last_over_time(gradientmail_{what}_total[{SHOWN}])"
    return scene.prometheus.by("node", f"sum by (node) ({latest})", at)


def is_answered(scene: Scene, expression: str) -> bool:
    moments = vars(scene.moments).values()
    values = [each for at in moments for each in scene.prometheus.instant(expression, at).values()]
    return any(map(math.isfinite, values))


def test_every_query_that_trainers_can_answer_has_an_answer(scene: Scene) -> None:
    answered = {str(each): is_answered(scene, asked(each)) for each in queries()}
    expected = {str(each): "gradientmail_" in each.expression or "vector(0)" in each.expression for each in queries()}
    assert answered == expected
    assert sum(answered.values()) > 60


def test_variables_list_the_run(scene: Scene) -> None:
    series = '{__name__=~"gradientmail_units|gradientrun_phase"}'
    assert scene.prometheus.label_values(series, "namespace") == [NAMESPACE]
    assert scene.prometheus.label_values(series, "run") == [NAME]


def test_consumed_units_equal_the_receipts_exactly(scene: Scene) -> None:
    receipts, end = scene.receipts, scene.moments.end
    assert by_node(scene, "Units consumed by node", at=end) == per_node(receipts)
    assert value(scene, "Progress over time", "consumed", at=end) == len(receipts)
    assert value(scene, "Progress", at=end) == len(receipts) / UNITS_IN_ALL
    assert len(set(receipts.values())) == 4, "both processes of c-0 are among them"


def test_claimed_units_equal_the_claims_exactly(scene: Scene) -> None:
    claims, end = scene.claims, scene.moments.end
    assert by_node(scene, "Units claimed by node", at=end) == per_node(claims)
    assert value(scene, "Progress over time", "claimed", at=end) == len(claims)
    assert value(scene, "Progress over time", "all units", at=end) == UNITS_IN_ALL


def test_a_killed_node_is_missed_with_what_it_held(scene: Scene) -> None:
    owned = [unit for unit, learner in scene.claims.items() if learner == "c-0.1"]
    held = len(set(owned) - scene.receipts.keys())
    assert held >= 1
    for at in (scene.moments.held, scene.moments.end):
        assert by_node(scene, "Unfinished units of nodes that are gone", at=at) == {"c-0": held}
    assert value(scene, "Nodes that answer", "answering", at=scene.moments.held) == 2
    assert value(scene, "Progress over time", "consumed", at=scene.moments.held) == UNITS_BELOW_FIRST_LIMIT


def test_a_node_that_was_started_again_counts_as_one_restart(scene: Scene) -> None:
    assert by_node(scene, "Restarts by node", at=scene.moments.held) == {"a-0": 0, "b-0": 0, "c-0": 0}
    assert by_node(scene, "Restarts by node", at=scene.moments.end) == {"a-0": 0, "b-0": 0, "c-0": 1}
    assert value(scene, "Nodes that answer", "answering", at=scene.moments.end) == 3


def test_speed_and_throughput_are_those_of_the_nodes(scene: Scene) -> None:
    fastest = {node: TOKENS_PER_BATCH / pace for node, pace in PACES.items()}
    tokens, seconds = (counted(scene, of, at=scene.moments.steady) for of in ("samples", "train_seconds"))
    speeds = {node: tokens[node] / seconds[node] for node in NODES}
    assert all(0 < speeds[node] <= 1.01 * fastest[node] for node in NODES), "a batch takes its pace, or longer"
    shares = by_node(scene, "Share of units against share of speed", "B", at=scene.moments.steady)
    assert shares == pytest.approx({node: speed / sum(speeds.values()) for node, speed in speeds.items()}, abs=0.1)
    throughput = by_node(scene, "Throughput by node", at=scene.moments.steady)
    assert throughput.keys() == NODES
    # Nothing may count twice. Above the fastest by less, as a scrape tells what it found up to a second after its time.
    assert all(0 < throughput[node] <= 1.5 * fastest[node] for node in NODES), throughput
    assert value(scene, "Throughput", at=scene.moments.steady) == pytest.approx(sum(throughput.values()))
    assert value(scene, "Throughput", at=scene.moments.outage) < value(scene, "Throughput", at=scene.moments.steady)


def test_shares_of_units_are_of_all_that_was_consumed(scene: Scene) -> None:
    receipts = per_node(scene.receipts)
    shares = by_node(scene, "Share of units against share of speed", "A", at=scene.moments.end)
    assert shares == pytest.approx({node: count / sum(receipts.values()) for node, count in receipts.items()})


def test_an_outage_shows_as_waiting_nodes_with_empty_buffers(scene: Scene) -> None:
    training = by_node(scene, "Share of time waiting for data", at=scene.moments.steady)
    assert training.keys() == NODES
    assert max(training.values()) < 0.5
    assert by_node(scene, "Share of time waiting for data", at=scene.moments.outage) == dict.fromkeys(NODES, 1.0)
    assert by_node(scene, "Batches ready", at=scene.moments.outage) == dict.fromkeys(NODES, 0.0)


def test_an_outage_shows_as_errors_and_slow_requests(scene: Scene) -> None:
    errors = query(RUN, "Mailbox errors")
    before = scene.prometheus.instant(asked(errors), scene.moments.steady)
    during = scene.prometheus.instant(asked(errors, OUTAGE), scene.moments.outage)
    assert set(before.values()) <= {0.0}
    failing = {dict(labels)["node"] for labels, rate in during.items() if rate > 0}
    assert failing == NODES
    assert {dict(labels)["outcome"] for labels, rate in during.items() if rate > 0} == {"unavailable"}
    slowest = scene.prometheus.by(
        "operation", asked(query(RUN, "Mailbox latency", "{{operation}}, 95 %")), scene.moments.outage
    )
    finite = [seconds for seconds in slowest.values() if math.isfinite(seconds)]
    assert max(finite) > 2, "four attempts, each of which the gateway gives up after two seconds"


def test_time_left_is_what_the_pace_says(scene: Scene) -> None:
    at = scene.moments.steady
    consumed = value(scene, "Progress over time", "consumed", at=at)
    slopes = scene.prometheus.by("instance", "deriv(gradientmail_units_consumed_total[5m])", at)
    answering = scene.prometheus.by("instance", "gradientmail_units_consumed_total", at)
    pace = sum(slopes[each] for each in answering)
    assert value(scene, "Time left", at=at) == pytest.approx((UNITS_IN_ALL - consumed) / pace)
    fastest = sum(1 / seconds for seconds in PACES.values()) / UNIT_STEPS
    assert 0 < pace < 1.25 * fastest, "units are counted whole, and a scrape tells what it found up to a second later"


def test_loss_falls_by_step(scene: Scene) -> None:
    for name in ("training loss", "held-out loss"):
        first = value(scene, "Loss by step", name, at=scene.moments.held)
        last = value(scene, "Loss by step", name, at=scene.moments.end)
        assert last < first
    assert value(scene, "Loss by step", "step", at=scene.moments.end) < STEPS


def test_versions_of_the_exchange_rise_at_all_nodes(scene: Scene) -> None:
    assert by_node(scene, "Version held", at=scene.moments.end).keys() == NODES
    assert min(by_node(scene, "Version held", at=scene.moments.end).values()) >= 1


def test_the_fleet_has_a_line_for_the_run(scene: Scene) -> None:
    table = {each.name: asked(each) for each in queries(FLEET) if each.panel == "Runs"}
    end = scene.moments.end
    for name, expected in (("C", len(scene.receipts)), ("D", UNITS_IN_ALL), ("F", 3)):
        assert scene.prometheus.instant(table[name], end) == {
            frozenset({("namespace", NAMESPACE), ("run", NAME)}): expected
        }
    assert value(scene, "Controllers", at=end, board=FLEET) == 0


def test_every_rule_is_evaluated_over_the_run(scene: Scene) -> None:
    groups: list[Mapping[str, Any]] = scene.prometheus.ask("rules", {})["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    written = yaml.safe_load(RULES.read_text())["groups"]
    assert len(rules) == sum(len(group["rules"]) for group in written)
    assert {rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"} == {}
    assert [rule["name"] for rule in rules if rule.get("state") == "firing"] == [], (
        "a minute is too short for any alert"
    )


def test_every_recording_of_trainers_has_values(scene: Scene) -> None:
    recorded = [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"] if "record" in rule
    ]
    for rule in recorded:
        values = scene.prometheus.instant(rule["record"], scene.moments.steady)
        assert bool(values) == ("gradientmail_" in rule["expr"]), rule["record"]
