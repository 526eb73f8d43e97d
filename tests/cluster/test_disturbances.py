"""What must not harm a run: pods, trainers, nodes, controllers and the API server that go away in the middle of it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cluster.harness.api import CONFIG_MAPS, JOBS, PODS, Object
from tests.cluster.harness.controller import Controller
from tests.cluster.harness.manifests import (
    NODES_FOLDER,
    pool_with,
    queue_pool,
    run_manifest,
    scripted_pool,
    training_pool,
)
from tests.cluster.harness.namespaces import Namespace
from tests.cluster.harness.runs import Run, check_final_counts, is_running, summary
from tests.cluster.harness.site import Site
from tests.cluster.harness.tool import ROOT, CommandFailed
from tests.cluster.harness.waiting import until

KILLED = "killed after"
"""What nodes/dying_controller.py says of its end."""
FEW = {"steps": 12, "batch": 4, "lanes": 2, "unitSteps": 1}
"""24 units."""


def test_a_controller_killed_at_every_step_of_a_run_changes_nothing(
    namespace: Namespace, controller: Controller, cluster: Site
) -> None:
    """No controller outlives its first change: one after another they bring a run of two pools to its end."""
    before = namespace.api.version()
    told = {"seconds": 3600, "claimed": 80, "consumed": 80}
    controller.scale(0)
    try:
        run = namespace.apply(run_manifest("killed", [scripted_pool("a", told=told), scripted_pool("b", told=told)]))
        deaths = _live_and_die(cluster, lambda: run.status.get("nodesRunning") == 2, run)
        for pod in run.wait_running(2, 30):
            words = ("--namespace", namespace.name, "exec", _name(pod), "--", "touch", "/tmp/end")
            namespace.kubectl(*words)
        deaths += _live_and_die(cluster, lambda: run.status["phase"] == "Succeeded", run)
    finally:
        controller.scale(1)
    assert deaths["POST configmaps"] == 1
    assert deaths["POST jobs"] == 2
    assert deaths["PATCH gradientruns"] >= 3, "the prefix, the nodes that run, the end"
    status = run.wait_phase("Succeeded", 30)
    assert status["units"] == {"total": 160, "claimed": 160, "consumed": 160, "lost": 0, "percent": 100}
    created = Counter(
        kind.plural
        for kind in (JOBS, CONFIG_MAPS, PODS)
        for event, found in namespace.api.history(kind, namespace.name, before)
        if event == "ADDED" and "gradientmail.io/run" in found["metadata"].get("labels", {})
    )
    assert created == {"jobs": 2, "configmaps": 1, "pods": 2}


def _live_and_die(cluster: Site, there: Callable[[], bool], run: Run) -> Counter[str]:
    """Start controllers that die at their first change until the run is there; return what they died of."""
    with TemporaryDirectory() as folder, (Path(folder) / "log").open("w") as log:

        def said() -> str:
            return Path(log.name).read_text()

        while not there():
            assert said().count(KILLED) < 30, f"no end after 30 lives: {summary(run.status)} {said()[-2000:]}"
            with _dying(cluster, log.fileno()) as process:
                until(partial(_ended, process, there), "the controller to make a change", 30, said)
        return Counter(re.findall(f"{KILLED} (.*)", said()))


def _ended(process: subprocess.Popen[bytes], there: Callable[[], bool]) -> bool:
    return process.poll() is not None or there()


@contextmanager
def _dying(cluster: Site, log: int) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, str(NODES_FOLDER / "dying_controller.py"), "--metrics-port=18080", "--log-format=text"]
    with subprocess.Popen(words, env=dict(cluster.tool.environment), stdout=log, stderr=log, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_run_goes_on_while_the_controller_is_down(namespace: Namespace, controller: Controller) -> None:
    run = namespace.apply(run_manifest("alone", [queue_pool("a", 2, seconds=0.05)]))
    run.wait_claims(2, 60)
    controller.scale(0)
    try:
        until(lambda: len(run.receipts()) == 160, "all receipts", 60, lambda: len(run.receipts()))
        until(lambda: not any(map(is_running, run.pods())), "the nodes to end", 30)
    finally:
        controller.scale(1)
    assert run.wait_phase("Succeeded", 30)["units"]["consumed"] == 160
    check_final_counts(run)


def test_a_killed_controller_is_replaced_and_takes_over(namespace: Namespace, controller: Controller) -> None:
    run = namespace.apply(run_manifest("orphan", [queue_pool("a", 2, seconds=0.1)]))
    run.wait_claims(2, 60)
    controller.kill()
    controller.wait_ready()
    assert run.wait_phase("Succeeded", 60)["units"]["consumed"] == 160
    check_final_counts(run)


def test_two_controllers_by_mistake_do_no_harm(namespace: Namespace, controller: Controller) -> None:
    before, restarts = namespace.api.version(), controller.restarts()
    controller.scale(2)
    try:
        run = namespace.apply(run_manifest("twice", [queue_pool("a", seconds=0.05), queue_pool("b", seconds=0.05)]))
        status = run.wait_phase("Succeeded", 60)
    finally:
        controller.scale(1)
    assert status["units"] == {"total": 160, "claimed": 160, "consumed": 160, "lost": 0, "percent": 100}
    check_final_counts(run)
    added = [found for event, found in namespace.api.history(PODS, namespace.name, before) if event == "ADDED"]
    assert len(added) == 2
    assert controller.restarts() <= restarts, "a pod that went has taken its own with it"


@pytest.mark.breaks_machines
def test_the_api_server_may_restart_in_the_middle_of_a_run(
    namespace: Namespace, controller: Controller, cluster: Site
) -> None:
    restarts = controller.restarts()
    run = namespace.apply(run_manifest("outage", [queue_pool("a", 2, seconds=0.1)]))
    run.wait_claims(2, 60)
    cluster.tool("restart-apiserver")
    assert run.wait_phase("Succeeded", 60)["units"]["consumed"] == 160
    check_final_counts(run)
    after = namespace.apply(run_manifest("after", [queue_pool(seconds=0)], data=FEW))
    after.wait_phase("Succeeded", 60)
    assert controller.restarts() == restarts


@pytest.mark.breaks_machines
def test_trainers_pods_and_nodes_that_die_cost_what_they_held_and_no_more(namespace: Namespace, cluster: Site) -> None:
    """At once: real trainers killed and deleted; a run that ends without a dead node; one that waits for it."""
    alive, doomed = cluster.hosts()[1], cluster.hosts()[-1]
    trainers = _train(namespace, alive)
    trainers.wait_claims(10, 90)
    pools = [_pinned(queue_pool("alive", seconds=0.4), alive), _pinned(queue_pool("doomed", seconds=0.4), doomed)]
    short = namespace.apply(run_manifest("short", pools))
    long = namespace.apply(run_manifest("long", [_pinned(queue_pool("doomed", seconds=1), doomed)]))
    until(lambda: len(set(short.claims().values())) == 2, "claims by both nodes", 60, short.claims)
    long.wait_claims(2, 60)
    killed, deleted = sorted(_name(pod) for pod in trainers.wait_running(2, 30))
    (before,) = long.wait_running(1, 30)
    cluster.tool("kill-node", "--no-wait", doomed)
    try:
        _kill_trainer(namespace, killed)
        namespace.api.delete(PODS, namespace.name, deleted)
        _check_that_both_came_back(trainers, killed, deleted)
        _check_that_it_ended_without_the_dead(short)
    finally:
        cluster.tool("start-node", doomed)
    (after,) = until(lambda: [pod for pod in long.running_pods() if _uid(pod) != _uid(before)], "a new pod", 60)
    until(lambda: _name(after) in long.claims().values(), "claims by the new learner", 30)
    assert short.status["phase"] == "Succeeded", "an end stands, whatever comes back"
    long.delete()


KILL_TRAINER = """
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc")):
    if b"gradientmail" in open(f"/proc/{pid}/cmdline", "rb").read().split(bytes(1))[1]:
        os.kill(int(pid), signal.SIGKILL)
"""
SLOWED = {"spec": {"containers": [{"name": "trainer", "env": [{"name": "GRADIENTMAIL_SLOWDOWN", "value": "100"}]}]}}


def _train(namespace: Namespace, host: str) -> Run:
    """Start 240 batches on two real trainers at a hundredth of their speed: long enough to be disturbed."""
    pool = _pinned(namespace.training(training_pool("a", 2, simulatedSpeed=1)), host, grace_seconds=60)
    trainer = {"task": "tests.integration.tiny_task:task", "microBatch": 2}
    data = {"steps": 120, "batch": 4, "lanes": 2, "unitSteps": 1}
    seeing_each_other = pool_with(pool_with(pool, SLOWED), {"spec": {"shareProcessNamespace": True}})
    return namespace.apply(run_manifest("trainers", [seeing_each_other], data=data, trainer=trainer))


def _kill_trainer(namespace: Namespace, pod: str) -> None:
    words = ("--namespace", namespace.name, "exec", pod, "--container", "trainer", "--")
    with suppress(CommandFailed):  # the container may end before the program has been heard; restarts are counted later
        namespace.kubectl(*words, "python3", "-c", KILL_TRAINER)


def _check_that_both_came_back(run: Run, killed: str, deleted: str) -> None:
    until(lambda: len(set(run.claims().values()) - {killed, deleted}) == 2, "claims by two new learners", 120)
    status = run.wait_phase("Succeeded", 120)
    assert len(run.receipts()) >= 220, "no more is lost than two learners held, with receipts under way"
    check_final_counts(run, killed={killed})
    assert {node["name"]: node["restarts"] for node in status["nodes"]} == {"a-0": 1, "a-1": 1}
    assert run.events()["NodeRestarted"] == 2


def _check_that_it_ended_without_the_dead(run: Run) -> None:
    status = run.wait_phase("Succeeded", 150)
    (dead,) = [_name(pod) for pod in run.pods("doomed")]
    check_final_counts(run, killed={dead})
    assert 1 <= 160 - len(run.receipts()) <= 5, "what the dead node had in use, loaded ahead and not yet written down"
    (silent,) = [node for node in status["nodes"] if node["pool"] == "doomed"]
    assert silent["message"] == "its host does not answer"


def _pinned(pool: Object, host: str, *, grace_seconds: int = 1) -> Object:
    spec = {"nodeSelector": {"kubernetes.io/hostname": host}, "terminationGracePeriodSeconds": grace_seconds}
    return pool_with(pool, {"spec": spec})


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])
