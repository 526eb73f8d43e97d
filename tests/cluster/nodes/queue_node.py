"""A node without a model: the real shared queue, receipts, metrics and last words, and a pause in place of each batch.

Run in a pod as the trainer is, with a JSON object as its argument: `seconds` a batch, before simulatedSpeed.
It needs no torch, so a test can afford a dozen of them on two cores.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from gradientmail.mailbox import open_mailbox
from gradientmail.manifest import load_manifest
from gradientmail.metrics import Labels, TrainerMetrics
from gradientmail.patterns.retrying import Stopped
from gradientmail.patterns.shared_queue import shared_queue
from gradientmail.stores import s3_options
from gradientmail.training.account import Account
from gradientmail.training.farewell import write_left, write_termination_message
from gradientmail.training.interruption import Interruption
from gradientmail.training.node import place_of, preference, slowness
from gradientmail.training.prefix import enter_prefix
from gradientmail.training.serving import serving
from gradientmail.units import Unit


def steps(unit: Unit) -> Iterator[int]:
    yield from range(unit.first, unit.first + unit.count)


def main() -> int:
    environment, seconds = os.environ, float(json.loads(sys.argv[1])["seconds"])
    manifest = load_manifest(Path("/etc/gradientmail/run.yaml"))
    node, learner = environment["GRADIENTMAIL_NODE"], environment["GRADIENTMAIL_LEARNER"]
    place, units, account = place_of(manifest, node), manifest.spec.data.grid(), Account(learner, node)
    labels = Labels(environment["GRADIENTMAIL_NAMESPACE"], manifest.metadata.name, node)
    metrics = TrainerMetrics(labels, units=len(units), progress=account.progress)
    probes = {"/livez": lambda: True, "/readyz": lambda: True}
    mailbox = open_mailbox(environment["GRADIENTMAIL_MAILBOX"], s3=s3_options(manifest.spec.mailbox))
    with Interruption(30.0) as interruption, serving(9090, metrics.registry, probes):
        enter_prefix(mailbox, manifest, where=environment["GRADIENTMAIL_MAILBOX"])
        queue = shared_queue(
            preference(units, place, manifest.spec.data.lanes),
            mailbox=mailbox,
            learner_id=learner,
            load=steps,
            prefetch=manifest.spec.trainer.prefetch,
            claim_ahead=manifest.spec.trainer.claim_ahead,
            observer=metrics,
        )
        account.queue = lambda: queue.statistics
        interruption.on_stop(queue.stop)
        pause = seconds * slowness(manifest, place, None).factor
        try:
            with queue as batches:
                for step in account.watched(batches):
                    interruption.stopping.wait(pause)
                    account.trained(step=step, samples=1)
        except Stopped:
            pass
        account.phase = "stopped" if interruption.stopping.is_set() else "finished"
        write_termination_message(Path(environment["GRADIENTMAIL_TERMINATION_MESSAGE"]), account.progress())
        write_left(mailbox, learner, account.progress())
        return interruption.exit_code


if __name__ == "__main__":
    sys.exit(main())
