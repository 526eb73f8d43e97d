"""Predictions: requests counted to the last, cost, times, advice, and the command around them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradientmail.commands.plan import numbers, plan_lines, pool_speeds
from gradientmail.exits import UserError
from gradientmail.manifest import parse_manifest
from gradientmail.prediction import (
    S3_PRICES,
    Requests,
    predict,
)
from gradientmail.run import Exchange, Spec

RUN = """\
apiVersion: gradientmail.io/v1alpha1
kind: GradientRun
metadata: {name: page}
spec:
  data: {steps: 6, batch: 32, lanes: 4, unitSteps: 1}
  trainer: {prefetch: 1, claimAhead: 0}
  nodes:
  - {name: a, simulatedSpeed: 4}
  - {name: b, replicas: 2, simulatedSpeed: 2}
  - {name: d, simulatedSpeed: 1}
"""
SPEEDS = {"a": 4.0, "b": 2.0, "d": 1.0}


def spec(**data: object) -> Spec:
    base = parse_manifest(RUN).spec
    return base.model_copy(update={"data": base.data.model_copy(update=data)})


def prefetching(steps: int, unit_steps: int, prefetch: int = 8) -> Spec:
    base = spec(steps=steps, unit_steps=unit_steps)
    return base.model_copy(
        update={"trainer": base.trainer.model_copy(update={"prefetch": prefetch, "claim_ahead": None})}
    )


def test_the_pages_example() -> None:
    prediction = predict(spec(), SPEEDS)
    assert [(node.node, node.speed, node.units) for node in prediction.nodes] == [
        ("a-0", 1.0, 11),
        ("b-0", 0.5, 5),
        ("b-1", 0.5, 5),
        ("d-0", 0.25, 3),
    ]
    assert (prediction.makespan, prediction.fixed_split) == (12, 24)
    assert sum(node.share for node in prediction.nodes) == 1


def test_requests_are_counted_to_the_last() -> None:
    prediction = predict(spec(), SPEEDS)
    # A claim is a list, a write and a read; a receipt is a write; each of the four nodes comes and goes.
    assert prediction.requests == Requests(list=24 + 8, put=48 + 20, get=24 + 8, delete=4)
    assert prediction.requests.total == 136
    assert prediction.cost == pytest.approx((32 + 68) * 0.005 / 1000 + 32 * 0.0004 / 1000)
    assert prediction.heartbeats_per_hour == Requests(put=960, delete=960)


def exchanging(sync_every: int = 2, **exchange: Any) -> Spec:
    base = spec()
    wanted = Exchange(sync_every=sync_every, **exchange)
    return base.model_copy(update={"trainer": base.trainer.model_copy(update={"exchange": wanted})})


def test_requests_of_the_exchange_are_those_of_its_rounds() -> None:
    # The fastest of four nodes trains 11 batches, so it opens five rounds of each of three fragments.
    prediction = predict(exchanging(fragments=3), SPEEDS)
    contributors, closers, looks = 4 * 15, 15, 4 * 5 * 20
    assert prediction.exchange == Requests(
        list=looks + 2 * contributors + closers,
        put=2 * contributors + 4 * closers,
        get=2 * contributors + 6 * closers,
        delete=closers,
    )
    assert prediction.exchange_cost == pytest.approx((535 + 180) * 0.005 / 1000 + 210 * 0.0004 / 1000)


def test_what_the_exchange_costs_is_told_unless_there_is_none() -> None:
    told = list(plan_lines(predict(exchanging(fragments=3), SPEEDS), listed=True))
    assert (
        "the exchange adds about 940 requests: less than $0.01; "
        "a larger spec.trainer.exchange.syncEvery or fewer fragments make it less"
    ) in told
    assert not [
        line for line in plan_lines(predict(exchanging(mode="Solo"), SPEEDS), listed=True) if "exchange" in line
    ]


def test_without_momentum_or_rounding_the_closer_writes_less_and_solo_nothing() -> None:
    whole = predict(exchanging(fragments=3), SPEEDS).exchange
    plain = predict(exchanging(fragments=3, outer_momentum=0.0, transfer_dtype="Float32"), SPEEDS).exchange
    assert whole.put - plain.put == 2 * 15
    assert predict(exchanging(mode="Solo"), SPEEDS).exchange == Requests()


def test_with_seconds_heartbeats_are_counted_too() -> None:
    prediction = predict(spec(), SPEEDS, step_seconds=60)
    assert (prediction.makespan, prediction.ideal) == (720, 640)
    # Done after 11, 10, 10 and 12 minutes.
    assert prediction.requests.delete == 4 + 44 + 40 + 40 + 48
    assert prediction.requests.put == 68 + 172


def test_prices_can_be_ones_own() -> None:
    prediction = predict(spec(), SPEEDS, prices={**S3_PRICES, "get": 1.0})
    assert prediction.cost == pytest.approx(100 * 0.005 / 1000 + 32 / 1000)


def test_no_advice_where_the_tail_is_short() -> None:
    assert predict(prefetching(4000, 20), SPEEDS).advice == ()


def test_advice_for_units_too_long() -> None:
    prediction = predict(prefetching(1000, 50), {"a": 8, "b": 4, "d": 1})
    assert prediction.tail > 0.02
    (advice,) = prediction.advice
    assert advice.startswith("data.taper: true would end the run ")


def test_advice_for_a_buffer_too_long() -> None:
    prediction = predict(prefetching(1000, 1, prefetch=64), {"a": 8, "b": 4, "d": 1})
    (advice,) = prediction.advice
    assert advice.startswith("trainer.claimAhead: 1 would end the run ")


def test_advice_for_more_nodes_than_units() -> None:
    base = spec(steps=1, lanes=2, unit_steps=1)
    assert predict(base, SPEEDS).advice[0] == "2 of 4 nodes get no unit: lower unitSteps or run fewer nodes"


def test_advice_where_nothing_helps() -> None:
    (advice,) = predict(spec(steps=2), {"a": 100, "b": 100, "d": 1}).advice
    assert advice.startswith("the end stays ")


def test_speeds_come_from_the_manifest_or_the_option() -> None:
    here = spec()
    assert pool_speeds(here, None) == {"a": 1.0, "b": 0.5, "d": 0.25}
    assert pool_speeds(here, "a=3, b=2.5,d=1e-1") == {"a": 3.0, "b": 2.5, "d": 0.1}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a=1,b=2", "--speeds leaves out d: give every pool a speed, such as a=1"),
        ("a=1,b=2,d=0", "--speeds gives d the speed 0: it must be above 0"),
        ("a=1,b=x,d=1", "--speeds gives b 'x': expected a number, as in b=2"),
        ("a=1,b,d=1", "--speeds gives b '': expected a number, as in b=2"),
        ("a=1,b=nan,d=1", "--speeds gives b nan: expected a number from 0 to 1e+09"),
        ("a=1,b=-4,d=1", "--speeds gives b -4: expected a number from 0 to 1e+09"),
        ("a=1,bb=2,d=1", "--speeds names 'bb': did you mean b?"),
        ("", "--speeds names '': the names are a, b, d"),
    ],
)
def test_speeds_that_make_no_sense(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        pool_speeds(spec(), text)
    assert str(caught.value) == sentence


def test_numbers_by_name() -> None:
    assert numbers("put=0.0055,get=0", "--prices", ("list", "put", "get")) == {"put": 0.0055, "get": 0.0}


def gradientmail(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gradientmail", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    file = tmp_path / "run.yaml"
    file.write_text(RUN)
    return str(file)


def test_the_command_for_people(manifest: str) -> None:
    done = gradientmail("plan", manifest, "--step-seconds", "60")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["node", "speed", "units", "share", "done", "after"]
    assert lines[1].split() == ["a-0", "1", "11", "45.8%", "11", "min", "00", "s"]
    assert lines[5] == "24 units of 24 batches in all"
    assert lines[6] == ("end after 12 min 00 s, 12.5% over the ideal 10 min 40 s; a fixed split would take 24 min 00 s")
    assert lines[7] == (
        "480 requests (32 list, 240 put, 32 get, 176 delete): "
        "less than $0.01 at list prices of S3 Standard, us-east-1, 2025"
    )


def test_the_command_for_programs(manifest: str) -> None:
    done = gradientmail("plan", manifest, "--json", "--speeds", "a=1,b=1,d=1")
    assert (done.returncode, done.stderr) == (0, "")
    prediction = json.loads(done.stdout)
    assert prediction["time_unit"] == "fastest_node_steps"
    assert prediction["makespan"] == 6.0
    assert [node["units"] for node in prediction["nodes"]] == [6, 6, 6, 6]


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e+300"])
def test_a_step_of_no_sensible_length(manifest: str, seconds: str) -> None:
    done = gradientmail("plan", manifest, "--step-seconds", seconds)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"gradientmail: --step-seconds is {seconds}: it must be above 0, and 86400 at most\n"


def test_a_users_mistake_is_one_sentence_and_code_2(manifest: str) -> None:
    done = gradientmail("plan", f"{manifest}.gone")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"gradientmail: {manifest}.gone: no such file: give the path of a GradientRun manifest\n"
