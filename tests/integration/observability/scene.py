"""A real run as Prometheus sees it: three trainers, one of them killed and started again, and an outage of the store.

Nodes reach moto's server by a gateway which answers 504 when the server does not within two seconds, as gateways do.
Dataset steps from a limit on are held back, so that the run can be brought to a stand in which nothing changes and
counts of different sources can be compared exactly.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gradientmail.layout import CONSUMED, UNITS
from gradientmail.mailbox import S3Options, Store, open_mailbox
from gradientmail.progress import Receipt
from tests.integration.mailbox.proxy import Answer, Exchange, Fault, ProxyServer
from tests.prometheus import Prometheus, free_port, prometheus_server, scraping
from tests.servers import CREDENTIALS, moto_process
from tests.waiting import Found, until

NAMESPACE, NAME = "team-a", "watched"
LIMIT_SECONDS = 300.0
GATEWAY_SECONDS = 2.0
UNIT_STEPS, LANES = 4, 2
STEPS = 2000
PACES = {"a-0": 0.1, "b-0": 0.2, "c-0": 0.2}
"""Seconds that a batch takes on each node."""
TOKENS_PER_BATCH = 8
FIRST_LIMIT = 16
UNITS_BELOW_FIRST_LIMIT = FIRST_LIMIT // UNIT_STEPS * LANES
WINDOW = "6s"
"""What rates are taken over."""
STAND_SECONDS = 7
NO_LIMIT = 10**9
ROOT = Path(__file__).parents[3]

MANIFEST: dict[str, Any] = {
    "apiVersion": "gradientmail.io/v1alpha1",
    "kind": "GradientRun",
    "metadata": {"name": NAME, "namespace": NAMESPACE},
    "spec": {
        "data": {"steps": STEPS, "batch": 4, "lanes": LANES, "unitSteps": UNIT_STEPS},
        "trainer": {
            "task": "tests.integration.observability.watched_task:task",
            "microBatch": 2,
            "logEvery": 1,
            "prefetch": 2,
            "evaluateEvery": 20,
            "exchange": {"syncEvery": 5, "fragments": 1, "patienceSeconds": 1, "flushSeconds": 1, "pollSeconds": 0.2},
        },
        "nodes": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
    },
}


@dataclass
class Moments:
    """Times at which the run was in a state that tests ask about, in seconds since the epoch."""

    held: float = 0.0
    """All units below the first limit are consumed, c-0 has just been killed and has been missed."""
    steady: float = 0.0
    """All three have trained for more than half of the last seconds. c-0.2 was seen before its first batch, as all."""
    outage: float = 0.0
    """The store has been away for long enough for errors, and every node waits."""
    end: float = 0.0
    """Nothing changes any more."""


@dataclass
class Scene:
    """The run, its bucket and its Prometheus."""

    prometheus: Prometheus
    box: Store
    moments: Moments = field(default_factory=Moments)
    claims: dict[str, str] = field(default_factory=dict)
    """The owner of each claimed unit in the bucket, at the end."""
    receipts: dict[str, str] = field(default_factory=dict)
    """The learner of each consumed unit in the bucket, at the end."""

    def count(self, prefix: str) -> int:
        """Return how many claims or receipts are in the bucket now."""
        return sum(1 for _ in self.box.list(prefix))

    def read_bucket(self) -> None:
        """Keep what the bucket says now."""
        self.claims = {unit: data.decode() for unit, data in self._objects(UNITS)}
        self.receipts = {unit: Receipt.from_json(data).learner for unit, data in self._objects(CONSUMED)}

    def _objects(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        for key in self.box.list(prefix):
            data = self.box.get(key)
            assert data is not None
            yield key.removeprefix(prefix), data


def per_node(learners: Mapping[str, str]) -> Counter[str]:
    """Return how many of the units each node has, over its processes: learners are named `{node}.{process}`."""
    return Counter(learner.partition(".")[0] for learner in learners.values())


class _Gateway(ProxyServer):
    def fault_for(self, exchange: Exchange) -> Fault:
        return _forward

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed has closed its connection."""


def _forward(exchange: Exchange) -> None:
    server: Any = exchange.server
    upstream = http.client.HTTPConnection(server.upstream, timeout=GATEWAY_SECONDS)
    try:
        upstream.request(exchange.command, exchange.path, exchange.body, dict(exchange.headers.items()))
        response = upstream.getresponse()
        exchange.answer(Answer(response.status, tuple(response.getheaders()), response.read()))
    except TimeoutError:
        exchange.refuse(504, "GatewayTimeout")
    finally:
        upstream.close()


@contextmanager
def _serving(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="gateway")
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Nodes:
    """Processes of the run's nodes, in a folder with the manifest and the task."""

    folder: Path
    url: str
    stack: ExitStack
    paces: Mapping[str, float]
    """Seconds that a batch takes on each node."""
    ports: dict[str, int]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, learner: str) -> None:
        """Start a process of a node; learners are named `{node}.{process}`."""
        node = learner.partition(".")[0]
        environment = {
            **os.environ,
            **CREDENTIALS,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "PACE": str(self.paces[node]),
            "LIMIT_FILE": "limit",
            "GRADIENTMAIL_NODE": node,
            "GRADIENTMAIL_LEARNER": learner,
            "GRADIENTMAIL_MAILBOX": self.url,
            "GRADIENTMAIL_METRICS_PORT": str(self.ports[learner]),
        }
        log = self.stack.enter_context((self.folder / f"{learner}.log").open("wb"))
        command = [sys.executable, "-m", "gradientmail", "train", "run.json"]
        process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log)
        self.processes[learner] = process
        self.stack.callback(_end, process)

    def kill(self, learner: str) -> None:
        """End a process as a crash would."""
        _end(self.processes.pop(learner))

    def hold_back_from(self, step: int) -> None:
        """Let nodes load dataset steps below this one only."""
        (self.folder / "limit.new").write_text(str(step))
        (self.folder / "limit.new").rename(self.folder / "limit")

    def until(self, holds: Callable[[], Found | None], what: str) -> Found:
        """Wait for a condition and return its answer, for at most five minutes and as long as all processes run."""

        def run_on() -> None:
            for learner, process in self.processes.items():
                assert process.poll() is None, (self.folder / f"{learner}.log").read_text()[-2000:]

        return until(holds, what, LIMIT_SECONDS, meanwhile=run_on, every_seconds=0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@dataclass(frozen=True)
class Stage:
    """Everything that a scene needs, before any node has been started."""

    scene: Scene
    nodes: Nodes
    store: int
    """The process of moto's server, which may be stopped and continued."""


@contextmanager
def watched_run(program: Path, folder: Path, rules: Path) -> Iterator[Scene]:
    """Run the scene to its end and give it, with Prometheus still answering."""
    learners = ("a-0.1", "b-0.1", "c-0.1", "c-0.2")
    with staged(program, folder, [rules], MANIFEST, PACES, learners) as stage:
        _play(stage.scene, stage.nodes, stage.store)
        yield stage.scene


@contextmanager
def staged(
    program: Path,
    folder: Path,
    rules: Sequence[Path],
    manifest: Mapping[str, Any],
    paces: Mapping[str, float],
    learners: Sequence[str],
    scrape_seconds: float = 1.0,
) -> Iterator[Stage]:
    """Start a store, its gateway and a Prometheus that scrapes a port of each learner."""
    with ExitStack() as stack:
        moto, pid = stack.enter_context(moto_process())
        gateway = _Gateway(moto.removeprefix("http://"))
        stack.enter_context(_serving(gateway))
        bucket = "watched"
        _create_bucket(moto, bucket)
        url = f"s3://{bucket}/runs/first"
        mailbox = {"url": f"s3://{bucket}/runs", "endpointURL": gateway.url, "addressing": "Path"}
        (folder / "run.json").write_text(json.dumps({**manifest, "spec": {**manifest["spec"], "mailbox": mailbox}}))
        ports = {learner: free_port() for learner in learners}
        jobs = [scraping("trainers", [f"127.0.0.1:{port}" for port in ports.values()], seconds=scrape_seconds)]
        prometheus = stack.enter_context(prometheus_server(program, folder, jobs, rules))
        scene = Scene(prometheus, open_mailbox(url, s3=S3Options(endpoint_url=moto)))
        yield Stage(scene, Nodes(folder, url, stack, paces, ports), pid)


@contextmanager
def outage(store: int) -> Iterator[None]:
    """Stop the store's process for a block."""
    os.kill(store, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(store, signal.SIGCONT)


def _create_bucket(endpoint: str, name: str) -> None:
    import boto3

    client = boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
    )
    client.create_bucket(Bucket=name)
    client.close()


def _play(scene: Scene, nodes: Nodes, store: int) -> None:
    moments, prometheus = scene.moments, scene.prometheus
    nodes.hold_back_from(0)
    for learner in ("a-0.1", "b-0.1", "c-0.1"):
        nodes.start(learner)
    nodes.until(
        lambda: prometheus.value("sum(gradientmail_claim_seconds_count)") == 3, "a claim by each of three nodes"
    )
    nodes.hold_back_from(FIRST_LIMIT)
    _moment(scene, nodes, lambda at: _stands(scene, at, UNITS_BELOW_FIRST_LIMIT), "the first stand")
    nodes.kill("c-0.1")
    moments.held = _moment(scene, nodes, lambda at: prometheus.instant(_MISSED, at), "c-0 to be missed")

    nodes.start("c-0.2")
    nodes.until(lambda: prometheus.value("count(gradientmail_units)") == 3, "the second process of c-0 to answer")
    nodes.hold_back_from(NO_LIMIT)
    moments.steady = _moment(scene, nodes, lambda at: prometheus.instant(_STEADY, at), "all nodes to train")

    with outage(store):
        moments.outage = _moment(scene, nodes, lambda at: prometheus.instant(_AWAY, at), "all to wait, and to fail")
    # Nodes that have not found the store again stand as well, and do so before the end.
    nodes.until(lambda: prometheus.value(f"count({_WAITING} < 1)") == 3, "all nodes to train again")

    nodes.hold_back_from(0)
    moments.end = _moment(scene, nodes, lambda at: _stands(scene, at), "the nodes to stand still")
    scene.read_bucket()


def _moment(scene: Scene, nodes: Nodes, holds: Callable[[float], object], what: str) -> float:
    """Wait for a time at which a condition holds, and will always be said to have held.

    What a scrape finds, or that it failed, is told when it ends, and of the time at which it began. So the time asked
    about is the latest of which all is told: each target's last scrape has ended, and began at that time or later.
    """

    def found() -> float | None:
        at = scene.prometheus.value("min(timestamp(up))")
        return at if at is not None and holds(at) else None

    return nodes.until(found, what)


_MISSED = f"count(last_over_time(gradientmail_units[{STAND_SECONDS}s])) == 2 and count(gradientmail_units) == 2"
_WAIT, _TRAIN = (f"sum by (node) (rate(gradientmail_{what}_seconds_total[{WINDOW}]))" for what in ("wait", "train"))
_WAITING = f"({_WAIT} / ({_WAIT} + {_TRAIN}))"
"""Each node's share of time without a batch."""
_STEADY = f'count({_WAITING} < 0.5) == 3 and min(gradientmail_batches_total{{node="c-0"}}) >= 12'
_FAILURES = 'sum by (node) (increase(gradientmail_mailbox_requests_total{outcome="unavailable"}[20s]))'
_AWAY = f"count({_FAILURES} > 0) == 3 and count({_WAITING} == 1) == 3"


def _stands(scene: Scene, at: float, units: int = 0) -> bool:
    """Whether every node holds a unit that it cannot load, no count changes any more, and Prometheus has seen them all.

    Without a unit it would be about to claim one, as after an outage. At least so many units are consumed.
    """
    moving = f"sum(gradientmail_buffered_batches) + sum(changes(gradientmail_train_seconds_total[{STAND_SECONDS}s]))"
    holding = "count(gradientmail_units_claimed_total - gradientmail_units_consumed_total >= 1)"
    return (
        bool(scene.prometheus.instant(f"{moving} == 0 and {holding} == 3", at))
        and scene.prometheus.value(_seen_in_all("consumed"), at) == scene.count(CONSUMED) >= units
        and scene.prometheus.value(_seen_in_all("claimed"), at) == scene.count(UNITS)
    )


def _seen_in_all(state: str) -> str:
    return f"sum(last_over_time(gradientmail_units_{state}_total[1h]))"
