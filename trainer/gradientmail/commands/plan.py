"""`gradientmail plan`: what a manifest will do and cost, without running anything."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradientmail.commands.options import MOST
from gradientmail.exits import UserError
from gradientmail.manifest import load_manifest
from gradientmail.prediction import S3_PRICES, S3_PRICES_AS_OF, VERBS, Prediction, predict
from gradientmail.progress import HEARTBEAT_SECONDS
from gradientmail.report.words import duration
from gradientmail.run import Spec

MOST_NODES_SHOWN = 40
LONGEST_STEP_SECONDS = 86400.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)


def plan(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A GradientRun manifest.")],
    speeds: Annotated[
        str | None,
        typer.Option(metavar="POOL=NUMBER,…", help="Relative speeds, such as a100=4,l4=1; else the simulatedSpeed."),
    ] = None,
    step_seconds: Annotated[
        float | None, typer.Option(help="Seconds that the fastest node takes for one lane of one step.")
    ] = None,
    prices: Annotated[
        str | None,
        typer.Option(metavar="VERB=USD,…", help="Dollars for 1,000 requests by verb, such as put=0.0055,get=0.00044."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Predict a run's units, requests, cost and end from its manifest. Nothing is run, and no store is asked."""
    spec = load_manifest(file).spec
    if step_seconds is not None and not 0 < step_seconds <= LONGEST_STEP_SECONDS:
        raise UserError(f"--step-seconds is {step_seconds:g}: it must be above 0, and {LONGEST_STEP_SECONDS:g} at most")
    prediction = predict(
        spec,
        pool_speeds(spec, speeds),
        step_seconds=step_seconds,
        prices=S3_PRICES if prices is None else {**S3_PRICES, **numbers(prices, "--prices", VERBS)},
    )
    if as_json:
        typer.echo(json.dumps(prediction.to_dict(), indent=2))
    else:
        Console(highlight=False, soft_wrap=True).print(plan_text(prediction, listed=prices is None))


def pool_speeds(spec: Spec, text: str | None) -> dict[str, float]:
    """Return each pool's speed: the ones given, else those of the manifest. Raises UserError."""
    if text is None:
        return spec.relative_speeds
    names = [pool.name for pool in spec.nodes]
    speeds = numbers(text, "--speeds", names)
    if missing := [name for name in names if name not in speeds]:
        raise UserError(f"--speeds leaves out {', '.join(missing)}: give every pool a speed, such as {names[0]}=1")
    if slow := next((name for name, speed in speeds.items() if speed <= 0), None):
        raise UserError(f"--speeds gives {slow} the speed {speeds[slow]:g}: it must be above 0")
    return speeds


def numbers(text: str, option: str, names: Collection[str]) -> dict[str, float]:
    """Return `name=number,…` as a mapping; names must be among `names`. Raises UserError."""
    pairs = [item.partition("=")[::2] for item in text.split(",")]
    return {_known(name.strip(), option, names): _number(name.strip(), value, option) for name, value in pairs}


def _known(name: str, option: str, names: Collection[str]) -> str:
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean {near[0]}?" if near else f"the names are {', '.join(names)}"
    raise UserError(f"{option} names {name!r}: {meant}")


def _number(name: str, text: str, option: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{option} gives {name} {text!r}: expected a number, as in {name}=2") from None
    if not 0 <= value <= MOST:
        raise UserError(f"{option} gives {name} {value:g}: expected a number from 0 to {MOST:g}")
    return value


def plan_text(prediction: Prediction, *, listed: bool) -> RenderableType:
    """Return the prediction for a terminal; `listed`: at list prices."""
    return Group(_table(prediction), *map(Text, plan_lines(prediction, listed=listed)))


def _table(prediction: Prediction) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("node")
    steps = prediction.step_seconds is None
    for name in ("speed", "units", "share", "done at step" if steps else "done after"):
        table.add_column(name, justify="right")
    for node in prediction.nodes[:MOST_NODES_SHOWN]:
        done = f"{node.finished:,.6g}" if steps else duration(node.finished)
        table.add_row(node.node, f"{node.speed:.3g}", f"{node.units:,}", f"{node.share:.1%}", done)
    return table


def plan_lines(prediction: Prediction, *, listed: bool) -> Iterator[str]:
    """Yield what the prediction says, a sentence a line."""
    if len(prediction.nodes) > MOST_NODES_SHOWN:
        yield f"and {len(prediction.nodes) - MOST_NODES_SHOWN} more nodes"
    yield f"{prediction.units:,} units of {prediction.batches:,} batches in all"
    yield (
        f"end after {_time(prediction.makespan, prediction)}, {prediction.tail:.1%} over the ideal "
        f"{_time(prediction.ideal, prediction)}; a fixed split would take {_time(prediction.fixed_split, prediction)}"
    )
    counts = ", ".join(f"{getattr(prediction.requests, verb):,} {verb}" for verb in VERBS)
    source = f"list prices of S3 Standard, us-east-1, {S3_PRICES_AS_OF}" if listed else "the prices given"
    yield f"{prediction.requests.total:,} requests ({counts}): {_dollars(prediction.cost)} at {source}"
    if prediction.exchange.total:
        yield (
            f"the exchange adds about {prediction.exchange.total:,} requests: {_dollars(prediction.exchange_cost)}; "
            "a larger spec.trainer.exchange.syncEvery or fewer fragments make it less"
        )
    if prediction.step_seconds is None:
        beats = prediction.heartbeats_per_hour.total
        yield (
            f"heartbeats come on top, one per node every {HEARTBEAT_SECONDS:g} s: {beats:,} requests an hour; "
            "give --step-seconds to have them counted and times in seconds"
        )
    for advice in prediction.advice:
        yield f"advice: {advice}"


def _time(time: float, prediction: Prediction) -> str:
    return f"{time:,.6g} steps of the fastest node" if prediction.step_seconds is None else duration(time)


def _dollars(cost: float) -> str:
    return "less than $0.01" if 0 < cost < 0.01 else f"${cost:,.2f}"
