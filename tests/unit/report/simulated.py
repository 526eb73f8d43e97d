"""Runs out of the simulator, as their mailbox would tell them: no process, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradientmail.progress import NodeProgress, Receipt
from gradientmail.run import GradientRun
from gradientmail.runstate import Learner, RunState
from gradientmail.simulation import SimulatedNode, simulate

EPOCH = 1_700_000_000.0


def manifest(names: Sequence[str], *, steps: int, unit_steps: int, lanes: int, taper: bool = False) -> GradientRun:
    record: dict[str, Any] = {
        "apiVersion": "gradientmail.io/v1alpha1",
        "kind": "GradientRun",
        "metadata": {"name": "four-speeds"},
        "spec": {
            "data": {"steps": steps, "batch": lanes, "lanes": lanes, "unitSteps": unit_steps, "taper": taper},
            "trainer": {"microBatch": 1},
            "nodes": [{"name": name} for name in names],
        },
    }
    return GradientRun.model_validate(record)


def state(
    speeds: Mapping[str, float],
    *,
    steps: int = 120,
    unit_steps: int = 20,
    lanes: int = 4,
    taper: bool = False,
    dies: tuple[str, float] | None = None,
    clocks: Mapping[str, float] | None = None,
    claim_ahead: int = 0,
) -> RunState:
    """Return the end of a run of pools of one node each, at these speeds in batches per second.

    `dies` names a pool that falls silent at that second; `clocks` says how far clocks are ahead.
    """
    run = manifest(list(speeds), steps=steps, unit_steps=unit_steps, lanes=lanes, taper=taper)
    units = run.spec.data.grid()
    trained = simulate(
        units, [SimulatedNode.steady(name, speed) for name, speed in speeds.items()], claim_ahead=claim_ahead
    )
    dead, death = dies or ("", 0.0)
    ahead = {name: (clocks or {}).get(name, 0.0) for name in speeds}
    learner = {name: f"{name}-0-abc123" for name in speeds}
    alive = [unit for unit in trained.units if unit.node != dead or unit.claimed < death]
    done = [unit for unit in alive if unit.node != dead or unit.finished <= death]
    receipts = {
        unit.identifier: Receipt(
            learner=learner[unit.node],
            batches=units[unit.identifier].count,
            claimed=EPOCH + unit.claimed + ahead[unit.node],
            started=EPOCH + unit.started + ahead[unit.node],
            finished=EPOCH + unit.finished + ahead[unit.node],
        )
        for unit in done
    }
    end = EPOCH + trained.makespan
    return RunState(
        read_at=end + 100.0,
        manifest=run,
        units=units,
        claimed=frozenset(unit.identifier for unit in alive),
        consumed=frozenset(receipts),
        receipts=receipts,
        owners={unit.identifier: learner[unit.node] for unit in alive if unit.identifier not in receipts},
        learners={
            learner[name]: Learner(
                name=learner[name],
                node=f"{name}-0",
                progress=NodeProgress(
                    learner=learner[name],
                    node=f"{name}-0",
                    time=(EPOCH + death if name == dead else end) + ahead[name],
                    phase="training" if name == dead else "finished",
                    wait_seconds=1.0,
                    train_seconds=trained.finished[name],
                    held_out_loss=2.5,
                ),
                beat=3,
                left=name != dead,
            )
            for name in speeds
        },
    )
