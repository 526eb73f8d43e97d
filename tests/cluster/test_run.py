"""A run from `kubectl apply` to its end, and what a person may do to it meanwhile."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import yaml

from gradientmail.layout import CONSUMED
from gradientmail.progress import Receipt
from tests.cluster.harness.api import CONFIG_MAPS, EVENTS, NAMESPACES, PODS, RUNS, Object
from tests.cluster.harness.manifests import ending, holding, queue_pool, run_manifest, scripted_pool, training_pool
from tests.cluster.harness.namespaces import Namespace
from tests.cluster.harness.runs import Run, check_final_counts
from tests.cluster.harness.tool import ROOT
from tests.cluster.harness.waiting import until

FOUR_NODES = ROOT / "examples" / "cluster" / "four-nodes.yaml"


def test_the_four_node_example_trains_every_unit_once(namespace: Namespace) -> None:
    """The main job: unequal nodes, real trainers, one queue in a bucket."""
    example = yaml.safe_load(FOUR_NODES.read_text())
    before = namespace.api.version()
    run = _apply_example(namespace, example)
    wait = ("wait", "--for=condition=Complete", "--timeout=450s", "gradientrun/four-nodes")
    namespace.kubectl("--namespace", namespace.name, *wait, seconds=460)

    status = run.status
    assert status["phase"] == "Succeeded"
    assert status["units"] == {"total": 244, "claimed": 244, "consumed": 244, "lost": 0, "percent": 100}
    assert len(run.receipts()) == 244
    check_final_counts(run)
    paces = _paces(run)
    assert paces["a-0"] > max(paces["b-0"], paces["c-0"]), paces
    assert min(paces["b-0"], paces["c-0"]) > paces["d-0"], paces
    assert {node["phase"] for node in status["nodes"]} == {"Succeeded"}
    _check_order_of_creation(namespace, run, before)
    told = run.wait_event("Succeeded")
    assert [told[reason] for reason in ("Accepted", "Running", "Succeeded")] == [1, 1, 1]


def _apply_example(namespace: Namespace, example: Object) -> Run:
    pools = [namespace.training(training_pool(**{"gpus": 1, **pool})) for pool in example["spec"]["nodes"]]
    # The one thing that is the cluster's own: which bucket, which image, where torch is.
    trainer = {name: value for name, value in example["spec"]["trainer"].items() if name != "image"}
    mailbox = namespace.store.mailbox(namespace.name)
    spec = {**example["spec"], "nodes": pools, "mailbox": mailbox, "trainer": trainer}
    namespace.kubectl.apply(namespace.name, namespace.completed({**example, "spec": spec}))
    return namespace.run("four-nodes")


def _paces(run: Run) -> dict[str, float]:
    """Return batches per second by node, while all of them trained."""
    texts = run.store.objects(f"{run.prefix}/{CONSUMED}").values()
    receipts = [Receipt.from_json(text) for text in texts]
    pods = {node["name"]: node["pod"] for node in run.status["nodes"]}
    by_node = {name: [each for each in receipts if each.learner == pod] for name, pod in pods.items()}
    begin = max(min(receipt.started for receipt in mine) for mine in by_node.values())
    end = min(max(receipt.finished for receipt in mine) for mine in by_node.values())
    return {
        name: sum(receipt.batches for receipt in mine if begin < receipt.finished <= end) / (end - begin)
        for name, mine in by_node.items()
    }


def _check_order_of_creation(namespace: Namespace, run: Run, before: str) -> None:
    """The prefix was in the status and in the ConfigMap before there was a pod; the cluster's own versions say so."""
    recorded = next(
        int(found["metadata"]["resourceVersion"])
        for _, found in namespace.api.history(RUNS, namespace.name, before)
        if (found.get("status") or {}).get("mailboxPrefix")
    )
    maps = [found for _, found in namespace.api.history(CONFIG_MAPS, namespace.name, before)]
    made = [found for found in maps if "prefix" in found["data"]]
    first = min(
        int(found["metadata"]["resourceVersion"]) for _, found in namespace.api.history(PODS, namespace.name, before)
    )
    assert [config["data"]["prefix"] for config in made] == [run.prefix]
    assert recorded < int(made[0]["metadata"]["resourceVersion"]) < first


def test_a_run_deleted_while_it_runs_leaves_nothing_and_its_name_is_free(namespace: Namespace) -> None:
    run = namespace.apply(run_manifest("again", [queue_pool("a", 2, seconds=0.5)]))
    run.wait_claims(4, 60)
    first, uid = run.prefix, run.uid
    run.delete()
    second = namespace.apply(run_manifest("again", [queue_pool("a", 2, seconds=0.0)]))
    status = second.wait_phase("Succeeded", 60)
    assert second.uid != uid
    assert second.prefix != first
    assert status["units"]["consumed"] == 160
    second.delete()
    until(namespace.children_are_gone, "all children to go", 60)


def test_a_namespace_with_a_failing_run_can_be_deleted(namespace: Namespace) -> None:
    """A Job holds on to a failed pod until it has made the next one, which a namespace that is ending refuses."""
    pool = scripted_pool(told={"seconds": 2, "exit": 1})
    run = namespace.apply(run_manifest("failing", [pool], restartsPerNode=10))
    run.wait(lambda status: any(node["restarts"] for node in status.get("nodes", [])), "a first restart", 60)
    namespace.api.delete(NAMESPACES, None, namespace.name)
    until(lambda: namespace.api.find(NAMESPACES, None, namespace.name) is None, "the namespace to go", 80)


def test_suspend_stops_all_nodes_and_resume_goes_on(namespace: Namespace) -> None:
    run = namespace.apply(run_manifest("paused", [queue_pool("a", 2, seconds=0.3)]))
    run.wait_claims(10, 60)
    run.wait(lambda status: status["nodesRunning"] == 2, "two running nodes", 60)
    run.patch(suspend=True)
    run.wait_phase("Suspended", 60)
    assert run.running_pods() == []
    claimed, prefix = run.claims(), run.prefix
    stopped = run.status
    assert stopped["units"]["lost"] == len(claimed) - len(run.receipts())
    run.patch(suspend=False)
    status = run.wait_phase("Succeeded", 60)
    assert run.prefix == prefix
    assert claimed.items() <= run.claims().items(), "claims are permanent"
    assert status["units"]["claimed"] == 160
    assert status["units"]["consumed"] + status["units"]["lost"] == 160
    assert status["units"]["lost"] == stopped["units"]["lost"]
    assert run.events()["Suspended"] == run.events()["Resumed"] == 1


def test_replicas_go_up_and_down_while_it_runs(namespace: Namespace) -> None:
    run = namespace.apply(run_manifest("elastic", [queue_pool("a", 2, seconds=2)]))
    run.wait_running(2, 60)
    run.scale(a=4)
    four = {pod["metadata"]["name"] for pod in run.wait_running(4, 60)}
    until(lambda: set(run.claims().values()) == four, "claims of all four", 60, run.claims)
    run.scale(a=1)
    (left,) = run.wait_running(1, 60)
    assert left["metadata"]["name"] in four
    status = run.wait(lambda status: _names(status) == ["a-0"] and status["nodesRunning"] == 1, "one running node", 30)
    assert status["nodes"][0]["restarts"] == 0, "a node that was scaled down is no failure"
    check_lost = until(lambda: run.status["units"]["lost"] or None, "lost units of the nodes that left", 30)
    assert check_lost <= 9, "no more than a unit in use and two loaded ahead, on three nodes"
    run.delete()


def _names(status: Mapping[str, Any]) -> list[str]:
    return [node["name"] for node in status["nodes"]]


def test_another_attempt_starts_once_the_old_pods_are_gone(namespace: Namespace) -> None:
    before = namespace.api.version()
    run = namespace.apply(run_manifest("retried", [queue_pool("a", 2, seconds=0.5)]))
    run.wait_claims(4, 60)
    first = run.prefix
    run.patch(attempt=2)
    run.wait(lambda status: status.get("attempt") == 2 and status["phase"] == "Running", "the second attempt", 60)
    assert run.prefix == first.removesuffix("-1") + "-2"
    assert _gone_before_begun(namespace, before)
    assert run.store.names(f"{first}/units/"), "the first attempt's mailbox is kept"
    run.delete()


def _gone_before_begun(namespace: Namespace, since: str) -> bool:
    """Whether the last pod of attempt 1 was deleted or over before the first of attempt 2 was created."""
    over: dict[str, int] = {}
    begun = []
    for event, pod in namespace.api.history(PODS, namespace.name, since):
        version, labels = int(pod["metadata"]["resourceVersion"]), pod["metadata"]["labels"]
        if labels["gradientmail.io/attempt"] == "2" and event == "ADDED":
            begun.append(version)
        elif labels["gradientmail.io/attempt"] == "1":
            ended = event == "DELETED" or pod["status"]["phase"] in ("Succeeded", "Failed")
            over.setdefault(pod["metadata"]["name"], version if ended else 0)
            over[pod["metadata"]["name"]] = over[pod["metadata"]["name"]] or (version if ended else 0)
    return bool(begun) and all(0 < version < min(begun) for version in over.values())


def test_live_counts_come_into_the_status(namespace: Namespace) -> None:
    """Within ten seconds, for which nodes are asked every seven (tests/unit/controller/test_plan.py)."""
    run = namespace.apply(run_manifest("counted", [holding()]))
    (pod,) = run.wait_running(1, 60)
    for count in (3, 5):
        script = f"open('/tmp/consumed', 'w').write('{count}')"
        words = ("exec", pod["metadata"]["name"], "--", "python3", "-c", script)
        namespace.kubectl("--namespace", namespace.name, *words)
        status = run.wait(lambda status, count=count: status["units"]["consumed"] == count, f"{count} units", 10)  # type: ignore[misc]
        assert status["nodes"][0]["consumed"] == status["nodes"][0]["step"] == count
    run.delete()


def test_fifty_runs_at_once_all_succeed(namespace: Namespace) -> None:
    data = {"steps": 4, "batch": 1, "lanes": 1, "unitSteps": 1}
    runs = [namespace.apply(run_manifest(f"run-{number}", [ending(units=4)], data=data)) for number in range(50)]
    until(lambda: _phases(namespace) == {"Succeeded": 50}, "fifty runs to succeed", 110, lambda: _phases(namespace))
    prefixes = {run.prefix for run in runs}
    assert len(prefixes) == 50
    assert len(namespace.api.list(CONFIG_MAPS, namespace.name, "gradientmail.io/run")) == 50


def _phases(namespace: Namespace) -> Counter[str]:
    return Counter((run.get("status") or {}).get("phase", "") for run in namespace.api.list(RUNS, namespace.name))


def test_describe_tells_the_story(namespace: Namespace) -> None:
    data = {"steps": 4, "batch": 1, "lanes": 1, "unitSteps": 1}
    run = namespace.apply(run_manifest("told", [ending(units=4)], data=data))
    run.wait_phase("Succeeded", 60)
    run.wait_event("Succeeded")
    text = namespace.kubectl("--namespace", namespace.name, "describe", "gradientrun", "told")
    for words in ("attempt 1 has the mailbox s3://", "all 4 units are consumed", "Mailbox Prefix:"):
        assert words in text
    events = namespace.api.list(EVENTS, namespace.name)
    reporters = {each["source"]["component"] for each in events if each["involvedObject"]["kind"] == "GradientRun"}
    assert reporters == {"gradientrun-controller"}
    (config,) = run.config_maps()
    assert config["immutable"] is True
    assert json.dumps(config["data"]).count("AWS_SECRET") == 0


def test_long_names_are_shortened_not_refused(namespace: Namespace) -> None:
    name, pool = "r" * 63, "p" * 40
    data = {"steps": 1, "batch": 1, "lanes": 1, "unitSteps": 1}
    run = namespace.apply(run_manifest(name, [ending(pool, units=1)], data=data))
    assert run.wait_phase("Succeeded", 60)["nodes"][0]["name"] == f"{pool}-0"
