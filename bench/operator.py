"""What the operator costs and how fast it is, on a real cluster: see tests/cluster for how one comes about.

Every node here is a small program in the trainer's place, so that two processors can hold fifty at once. All else is
real: API server, scheduler, kubelets, the chart's installation. About 12 minutes; `--idle-seconds` shortens it.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from typing import Any

from bench.figures import Figure, show
from tests.cluster.harness.api import JOBS, RUNS
from tests.cluster.harness.controller import Controller, writes
from tests.cluster.harness.manifests import ending, holding, queue_pool, run_manifest
from tests.cluster.harness.metrics import difference
from tests.cluster.harness.namespaces import Namespace, Namespaces
from tests.cluster.harness.serving import serve_store
from tests.cluster.harness.session import install_controller, open_site
from tests.cluster.harness.waiting import until

ONE = {"steps": 1, "batch": 1, "lanes": 1, "unitSteps": 1}
POOLS = 4
AT_ONCE = 50
FINISHED = 200
IDLE_SECONDS = 300.0
MEGABYTE = 1e6


def p95(values: list[float]) -> float:
    """Return the value that 95 of 100 do not exceed."""
    return sorted(values)[max(0, -(-len(values) * 95 // 100) - 1)]


class Stopwatch:
    """Times, on this machine's clock, from each run's apply to the event of its last Job."""

    def __init__(self, namespace: Namespace, pools: int) -> None:
        self._namespace = namespace
        self._pools = pools
        self._applied: dict[str, float] = {}
        self._seen: dict[str, list[float]] = {}
        since = namespace.api.version()
        self._thread = threading.Thread(target=self._follow, args=(since,), name="jobs", daemon=True)
        self._thread.start()

    def _follow(self, since: str) -> None:
        for event, job in self._namespace.api.follow(JOBS, self._namespace.name, since, seconds=600):
            if event == "ADDED":
                run = job["metadata"]["labels"]["gradientmail.io/run"]
                self._seen.setdefault(run, []).append(time.monotonic())

    def apply(self, name: str) -> None:
        """Apply a run of four pools and note when."""
        pools = [ending(f"pool-{number}", units=0) for number in range(self._pools)]
        self._applied[name] = time.monotonic()
        self._namespace.apply(run_manifest(name, pools, data=ONE))

    def seconds(self, name: str) -> float:
        """Wait for a run's last Job and return how long it took."""
        times = until(lambda: self._all(name), f"the Jobs of {name}", 60)
        return times[-1] - self._applied[name]

    def _all(self, name: str) -> list[float] | None:
        times = self._seen.get(name, [])
        return list(times) if len(times) == self._pools else None


def one_by_one(namespace: Namespace, runs: int = 20) -> Figure:
    """Measure the time to all Jobs with one run at a time."""
    watch, seconds = Stopwatch(namespace, POOLS), []
    for number in range(runs):
        watch.apply(f"single-{number}")
        seconds.append(watch.seconds(f"single-{number}"))
        run = namespace.run(f"single-{number}")
        run.wait_phase("Succeeded", 90)
    found = p95(seconds)
    return Figure(f"apply to the Jobs of all 4 pools, 1 run, p95 of {runs}", f"{found:.2f} s", "under 1 s", found < 1)


def all_at_once(namespace: Namespace) -> Figure:
    """Measure the time to all Jobs with fifty runs at once, their pods starting on the same machine."""
    watch = Stopwatch(namespace, 1)
    names = [f"many-{number}" for number in range(AT_ONCE)]
    for name in names:
        watch.apply(name)
    found = p95([watch.seconds(name) for name in names])
    _wait_finished(namespace, AT_ONCE)
    return Figure(f"apply to the Jobs, {AT_ONCE} runs at once, p95", f"{found:.2f} s", "under 5 s", found < 5)


def requests_of_a_run(namespace: Namespace, controller: Controller) -> Figure:
    """Count the controller's requests for a run of four nodes of a pool each, 160 units in some 20 seconds."""
    before = controller.requests()
    run = namespace.apply(run_manifest("frugal", [queue_pool(name, seconds=0.5) for name in "abcd"]))
    run.wait_phase("Succeeded", 120)
    spent = difference(controller.requests(), before)
    words = ", ".join(f"{count} {name}" for name, count in sorted(spent.items()))
    total = sum(spent.values())
    return Figure("requests from apply to Succeeded, 4 nodes", f"{total} ({words})", "60 at most", total <= 60)


def memory_with_finished_runs(namespace: Namespace, controller: Controller) -> Figure:
    """Measure the controller's resident memory with two hundred finished runs."""
    for number in range(FINISHED):
        namespace.apply(run_manifest(f"finished-{number}", [ending(units=1)], data=ONE))
        if number % AT_ONCE == AT_ONCE - 1:
            _wait_finished(namespace, number + 1)
    found = controller.memory() / MEGABYTE
    return Figure(f"memory with {FINISHED} finished runs", f"{found:.0f} MB", "under 150 MB", found < 150)


def idle(namespace: Namespace, controller: Controller, seconds: float) -> list[Figure]:
    """Count requests while nothing changes, with two hundred finished runs and one that runs."""
    run = namespace.apply(run_manifest("running", [holding("a", 2)]))
    run.wait(_counted, "the first counts", 120)
    before, began = controller.requests(), time.monotonic()
    until(lambda: time.monotonic() - began > seconds, "the time to pass", seconds + 10)
    spent = difference(controller.requests(), before)
    reads = sum(spent.values()) - writes(spent)
    window = f"in {seconds:.0f} s without change"
    return [
        Figure(f"writes {window}", str(writes(spent)), "none", writes(spent) == 0),
        Figure(f"reads {window}", str(reads), "the slow resync: 20 at most", reads <= 20),
    ]


def _counted(status: Mapping[str, Any]) -> bool:
    nodes = status.get("nodes") or []
    return bool(nodes) and all(node.get("step") == 0 for node in nodes)


def _wait_finished(namespace: Namespace, count: int) -> None:
    def finished() -> bool:
        phases = [(run.get("status") or {}).get("phase") for run in namespace.api.list(RUNS, namespace.name)]
        return phases.count("Succeeded") >= count

    until(finished, f"{count} finished runs", 240)


def measure(say: Callable[[str], None], idle_seconds: float) -> Iterator[Figure]:
    """Yield all figures, each as soon as it is known."""
    with ExitStack() as stack:
        site = stack.enter_context(open_site(say, nullcontext))
        store = serve_store(site, stack)
        controller = stack.enter_context(install_controller(site))
        namespaces = Namespaces(site.api, site.kubectl, store, site.images)
        stack.callback(namespaces.delete)
        first, second = namespaces.create("single"), namespaces.create("many")
        say("one run at a time")
        yield one_by_one(first)
        yield requests_of_a_run(first, controller)
        say("fifty runs at once")
        yield all_at_once(second)
        say("two hundred finished runs")
        third = namespaces.create("finished")
        yield memory_with_finished_runs(third, controller)
        say("nothing changes")
        yield from idle(third, controller, idle_seconds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.operator", description=__doc__)
    parser.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS, help="how long nothing is to change")
    given = parser.parse_args()
    figures = []
    for figure in measure(lambda text: print(f"== {text}", flush=True), given.idle_seconds):
        print(f"   {figure.what}: {figure.measured}", flush=True)
        figures.append(figure)
    show(figures)


if __name__ == "__main__":
    main()
