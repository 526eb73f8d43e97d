"""The training loop of the page, as a script of one's own: no manifest, any number of processes, any mailbox.

    .venv/bin/python examples/page/train.py --rank 0 --mailbox file:///tmp/first &
    .venv/bin/python examples/page/train.py --rank 1 --mailbox file:///tmp/first

Start as many as you like, whenever you like, here or on other machines (then with s3://BUCKET/PREFIX). Each takes
units that nobody has taken yet, and they exchange what they learn. The model and who trained what:

    .venv/bin/gradientmail export /tmp/first model.safetensors
    .venv/bin/gradientmail report /tmp/first --out /tmp/first-report

Use a fresh prefix for each run, and each rank once per run. On two cores it takes some minutes.
"""

from __future__ import annotations

import argparse
import math
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from gradientmail import Unit, first_lane, grid, open_mailbox
from gradientmail.exchange import Session
from gradientmail.patterns.shared_queue import shared_queue
from gradientmail.training.decoder import Decoder, Shape


def positive(text: str) -> int:
    """Return a number of steps."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps: give 1 or more")
    return int(text)


parser = argparse.ArgumentParser(description="Train a small GPT on the text of Python's own library.")
parser.add_argument("--rank", type=int, required=True, help="number of this node")
parser.add_argument("--mailbox", required=True, help="file:///FOLDER or s3://BUCKET/PREFIX, the same for every node")
parser.add_argument("--endpoint-url", help="of an S3-compatible store")
parser.add_argument("--steps", type=positive, default=200, help="dataset steps of the run")
options = parser.parse_args()

BATCH = 32
CONTEXT = 128
nodes = 4
rank = options.rank
steps = options.steps
unit_steps = 5
device = "cuda" if torch.cuda.is_available() else "cpu"

text = b"\0".join(path.read_bytes() for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")))
if len(text) <= steps * BATCH * CONTEXT:
    raise SystemExit(f"--steps {steps} needs more text than there is: at most {len(text) // (BATCH * CONTEXT)}")
tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8)


def sequences(start: int, count: int) -> Tensor:
    """Read `count` consecutive sequences; each has one token more than the context, the last target."""
    span = tokens[start * CONTEXT : (start + count) * CONTEXT + 1]
    return span.unfold(0, CONTEXT + 1, CONTEXT).long()


def load_unit(unit: Unit) -> Iterator[tuple[int, Tensor]]:
    """Turn a unit into (step, tensor) pairs."""
    share = BATCH // unit.lanes

    for step in range(unit.first, unit.first + unit.count):
        start = step * BATCH + unit.lane * share
        yield step, sequences(start, share)


def learning_rate(step: int) -> float:
    """Rise over the first 20 steps, then fall along a cosine."""
    return 2e-3 * min(1.0, (step + 1) / 20) * 0.5 * (1.1 + 0.9 * math.cos(math.pi * step / steps))


units = grid(steps=steps, unit_steps=unit_steps, lanes=nodes)
# Each node prefers a lane of its own, so that two nodes rarely try the same unit at once.
units = first_lane(units, rank % nodes)

s3 = None
if options.endpoint_url:
    from gradientmail.mailbox import S3Options

    s3 = S3Options(endpoint_url=options.endpoint_url)
box = open_mailbox(options.mailbox, s3=s3)

model = Decoder(Shape(vocabulary=256, context=CONTEXT, layers=2, heads=4, width=64))
model.initialize(torch.Generator().manual_seed(0))  # the same parameters on every node
model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
session = Session(model, mailbox=box, learner_id=f"node-{rank}")

micro_batch = 4
share = BATCH // nodes
accumulation = share // micro_batch

with (
    session,
    shared_queue(
        units,
        mailbox=box,
        learner_id=f"node-{rank}",
        load=load_unit,
        prefetch=8,
    ) as batches,
):
    for number, (step, batch) in enumerate(batches):
        batch = batch.to(device)

        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)

        for chunk in batch.split(micro_batch):  # type: ignore[no-untyped-call]
            with torch.autocast(device_type=device, dtype=torch.bfloat16, enabled=device == "cuda"):
                loss = model(chunk[:, :-1], chunk[:, 1:]) / accumulation
            loss.backward()

        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        session.step(samples=share * CONTEXT)

        if number % 10 == 0:
            print(f"node {rank}: step {step}, loss {loss.item() * accumulation:.3f}", flush=True)

counts, exchange = batches.statistics, session.statistics
print(f"node {rank}: trained {counts.consumed} of {len(units)} units, waited {counts.wait_seconds:.1f} s", flush=True)
print(f"node {rank}: adopted {exchange.adopted} versions, which took {exchange.blocked_seconds:.2f} s", flush=True)
