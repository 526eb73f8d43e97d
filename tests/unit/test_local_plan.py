import sys
from pathlib import Path

import pytest

from gradientmail.local.plan import NodePlan, inherited, node_plans, simulated_slowdowns
from gradientmail.run import GradientRun
from tests.unit.report.simulated import manifest

TWO_POOLS = ["a", "b"]


def plans(
    *,
    gpus: list[str],
    join: bool = False,
    cores: int = 8,
    environment: dict[str, str] | None = None,
    metrics: bool = False,
) -> list[NodePlan]:
    run = manifest(TWO_POOLS, steps=4, unit_steps=1, lanes=2)
    more = run.model_dump(by_alias=True)
    more["spec"]["nodes"][1]["replicas"] = 2
    return node_plans(
        GradientRun.model_validate(more),
        manifest_path=Path("/runs/x/manifest.yaml"),
        mailbox="file:///runs/x/mailbox",
        folder=Path("/runs/x/nodes"),
        join=join,
        tokens=["0000aa", "0000bb", "0000cc"],
        cores=cores,
        gpus=gpus,
        environment=environment or {},
        metrics=metrics,
    )


def test_each_node_is_a_trainer_with_a_learner_of_its_own() -> None:
    last = plans(gpus=[])[2]
    assert last.arguments == (
        *(sys.executable, "-m", "gradientmail", "train", "/runs/x/manifest.yaml"),
        *("--node", "b-1", "--learner-id", "b-1-0000cc", "--mailbox", "file:///runs/x/mailbox"),
        *("--log-format", "json", "--termination-message", "/runs/x/nodes/b-1.json", "--grace-seconds", "25"),
    )
    assert last.log == Path("/runs/x/nodes/b-1.log")
    assert [plan.node for plan in plans(gpus=[])] == ["a-0", "b-0", "b-1"]


def test_joining_is_passed_on() -> None:
    assert all(plan.arguments[-1] == "--join" for plan in plans(gpus=[], join=True))


def test_nodes_serve_metrics_on_loopback_if_asked_to_and_else_none() -> None:
    served = plans(gpus=[], metrics=True)[0].arguments
    assert [served[served.index(name) + 1] for name in ("--metrics-port", "--metrics-host")] == ["0", "127.0.0.1"]
    assert "--metrics-port" not in plans(gpus=[])[0].arguments


def test_gpus_are_dealt_round() -> None:
    assert [plan.environment["CUDA_VISIBLE_DEVICES"] for plan in plans(gpus=["0", "3"])] == ["0", "3", "0"]
    assert all("CUDA_VISIBLE_DEVICES" not in plan.environment for plan in plans(gpus=[]))


def simulating(speeds: dict[str, float | None]) -> GradientRun:
    document = manifest(list(speeds), steps=4, unit_steps=1, lanes=2).model_dump(by_alias=True)
    for pool in document["spec"]["nodes"]:
        pool["simulatedSpeed"] = speeds[pool["name"]]
    return GradientRun.model_validate(document)


@pytest.mark.parametrize(
    ("cores", "slowdowns"),
    [
        (None, [1.0, 2.0, 2.0, 4.0]),  # a GPU each
        (16, [1.0, 2.0, 2.0, 4.0]),
        (2, [1.3235, 2.6471, 2.6471, 5.2941]),  # 2.25 cores' worth of nodes on 1.7 that can be counted on
    ],
)
def test_simulated_speeds_keep_their_ratios_when_cores_are_few(cores: int | None, slowdowns: list[float]) -> None:
    run = simulating({"a": 4, "b": 2, "c": 2, "d": 1})
    assert simulated_slowdowns(run, cores=cores) == pytest.approx(slowdowns, abs=1e-4)


def test_nothing_is_slowed_where_no_speed_is_simulated() -> None:
    assert simulated_slowdowns(simulating({"a": None, "b": None}), cores=1) == []


@pytest.mark.parametrize(("cores", "threads"), [(1, "1"), (2, "1"), (8, "2"), (96, "32")])
def test_cores_are_shared_out(cores: int, threads: str) -> None:
    assert plans(gpus=[], cores=cores)[0].environment["OMP_NUM_THREADS"] == threads


def test_the_users_threads_win_and_settings_of_pods_are_dropped() -> None:
    user = {"OMP_NUM_THREADS": "7", "GRADIENTMAIL_METRICS_PORT": "9000", "HOME": "/home/x"}
    assert inherited(user, threads=2) == {
        "OMP_NUM_THREADS": "7",
        "HOME": "/home/x",
        "GRADIENTMAIL_LEASH_SECONDS": "25",
    }
