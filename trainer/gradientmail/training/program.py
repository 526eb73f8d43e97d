"""The program that each node runs: take part in a run from the first claim to the last word."""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import torch

from gradientmail.exchange import TrainingSession
from gradientmail.exits import Exit, UserError
from gradientmail.mailbox import InvalidKey, MailboxError, S3Options, Store
from gradientmail.metrics import Labels, TrainerMetrics
from gradientmail.patterns.retrying import Patience, Stopped
from gradientmail.patterns.shared_queue import LearnerInUse, SharedQueue, shared_queue
from gradientmail.progress import HEARTBEAT_SECONDS
from gradientmail.run import GradientRun
from gradientmail.stores import open_url, s3_options
from gradientmail.training.account import Account
from gradientmail.training.exchanging import MakeSession, session_for
from gradientmail.training.farewell import LastWords, write_left
from gradientmail.training.heartbeat import Heartbeat
from gradientmail.training.interruption import Interruption
from gradientmail.training.loading import build_task
from gradientmail.training.logs import emit
from gradientmail.training.loop import Rule, Trained, autocast_type, train, unit_loader
from gradientmail.training.node import NodeOptions, check_learner, place_of, preference, slowness
from gradientmail.training.pace import pace_for
from gradientmail.training.parameters import write_model
from gradientmail.training.periodic import Periodic
from gradientmail.training.prefix import enter_prefix, refuse_used_learner
from gradientmail.training.reporting import PROGRESS_SECONDS, Everyone, Reporter, UnitLines
from gradientmail.training.serving import serving
from gradientmail.training.task import Setting, Task, check_available
from gradientmail.units import Unit

STALL_SECONDS = 900.0
"""A batch or an evaluation that takes longer than this is taken for a hang by /livez."""

RECEIPTS_SHARE, EXCHANGE_SHARE = 0.25, 0.75
"""Parts of the grace time by which receipts must be written and the exchange be left; the rest is for the last word."""

Explain = Callable[[BaseException], tuple[str, Exit] | None]
Batch = tuple[int, torch.Tensor]


class OutOfMemory(UserError):
    """The GPU's memory does not hold a micro-batch. A failure of this node alone: another may have more."""

    exit = Exit.FAILED


@dataclass
class Node:
    """One node: run it once, on the main thread."""

    manifest: GradientRun
    options: NodeOptions
    interruption: Interruption
    explain: Explain
    """Says what a known error means, in one sentence, and which exit code it has."""
    exchange: MakeSession = session_for
    beat_seconds: float = HEARTBEAT_SECONDS
    opening: Callable[[str, S3Options], Store] = field(default=open_url)

    def __post_init__(self) -> None:
        self.place = place_of(self.manifest, self.options.node)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.account = Account(check_learner(self.options.learner_id), self.options.node)
        self.reporter = Reporter(self.account, self.options.log_format, self.device)
        self.last_words = LastWords(self.options.termination_message, self.account.progress)
        self.mailbox: Store | None = None
        self.queue: SharedQueue[Batch] | None = None
        self.evaluated_at: int | None = None
        self._halted = threading.Event()
        """Set once the queue gives no more batches: from then on, no pace is kept."""

    def run(self) -> Exit:
        """Train until no unit is left or the node is asked to stop; return the exit code.

        Whatever happens, the termination message is written, and the last word if the store takes it. Errors that
        `explain` knows are raised for the command line to print; others are logged with their traceback.
        """
        self.interruption.on_overdue(self._cut_off)
        try:
            with ExitStack() as stack:
                self._take_part(stack)
        except Stopped:
            return self._stopped()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the last word is due; a task's exit() too
            known = told(error, self.manifest)
            explained = self.explain(known)
            self._failed(
                explained[0] if explained else f"{type(error).__name__}: {error}", None if explained else error
            )
            if explained is None:
                return Exit.FAILED
            raise known from (None if known is error else error)
        return self._stopped() if self.account.phase == "stopped" else self._finished()

    def _take_part(self, stack: ExitStack) -> None:
        units = self.manifest.spec.data.grid()
        metrics = self._metrics(len(units))
        self._serve(stack, metrics)
        mailbox = self._open(metrics)
        self.mailbox = mailbox
        heartbeat = Heartbeat(mailbox, self.options.learner_id, self.account.progress)
        stack.callback(self._last_beat, heartbeat)
        stack.enter_context(Periodic("heartbeat", self.beat_seconds, heartbeat.beat))
        stack.enter_context(Periodic("progress", PROGRESS_SECONDS, self.reporter.tick))
        task = self._task()
        session = self.exchange(task.model, mailbox, self.options.learner_id, self.manifest)
        queue = self._queue(units, mailbox, task, metrics)
        self._train(session, queue, task)
        self._leave(session, mailbox, task)

    # Opening.

    def _metrics(self, units: int) -> TrainerMetrics:
        metadata = self.manifest.metadata
        labels = Labels(self.options.namespace or metadata.namespace, metadata.name, self.options.node)
        return TrainerMetrics(labels, units=units, progress=self.account.progress)

    def _serve(self, stack: ExitStack, metrics: TrainerMetrics) -> None:
        if self.options.metrics_port is not None:
            probes = {"/livez": self._live, "/readyz": lambda: self.account.phase == "training"}
            host = self.options.metrics_host
            port = stack.enter_context(serving(self.options.metrics_port, metrics.registry, probes, host))
            emit("serving", f"metrics at port {port}", port=port)

    def _open(self, metrics: TrainerMetrics) -> Store:
        mailbox = self.opening(self.options.mailbox, s3_options(self.manifest.spec.mailbox))
        mailbox.observe = metrics.request
        enter_prefix(mailbox, self.manifest, where=self.options.mailbox, join=self.options.join)
        refuse_used_learner(mailbox, self.options.learner_id)
        return mailbox

    def _task(self) -> Task:
        trainer, data = self.manifest.spec.trainer, self.manifest.spec.data
        setting = Setting(
            device=self.device,
            seed=trainer.seed,
            steps=data.steps,
            batch=data.batch,
            micro_batch=trainer.micro_batch,
            autocast=autocast_type(trainer.precision, self.device),
            s3=s3_options(self.manifest.spec.mailbox),
            patience=self._patience(),
        )
        torch.manual_seed(trainer.seed)
        task = build_task(trainer.task, trainer.args, setting)
        check_available(task, steps=data.steps, batch=data.batch)
        # Parameters begin alike on every node; what dropout draws should not be.
        torch.manual_seed(trainer.seed + zlib.crc32(self.options.learner_id.encode()))
        count = sum(parameter.numel() for parameter in task.model.parameters())
        emit("task", f"{trainer.task}: {count:,} parameters on {self.device}", parameters=count)
        return task

    def _queue(self, units: dict[str, Unit], mailbox: Store, task: Task, metrics: TrainerMetrics) -> SharedQueue[Batch]:
        trainer, data = self.manifest.spec.trainer, self.manifest.spec.data
        return shared_queue(
            preference(units, self.place, data.lanes),
            mailbox=mailbox,
            learner_id=self.options.learner_id,
            load=unit_loader(task.sequences, data.batch, pin=self.device.type == "cuda"),
            prefetch=trainer.prefetch,
            claim_ahead=trainer.claim_ahead,
            outage_seconds=trainer.outage_seconds,
            flush_seconds=self.options.grace_seconds * RECEIPTS_SHARE,
            observer=Everyone([self.last_words, metrics, UnitLines(self.account)]),
        )

    # Training.

    def _train(self, session: TrainingSession, queue: SharedQueue[Batch], task: Task) -> None:
        self.queue = queue
        self.account.queue = lambda: queue.statistics
        self.account.exchange = lambda: session.statistics
        self.interruption.on_stop(queue.stop)
        self.interruption.on_stop(self._halted.set)
        self.interruption.on_stop(lambda: session.leave_within(self.options.grace_seconds * EXCHANGE_SHARE))
        try:
            with session:
                self._evaluate(task)
                with queue as batches:
                    self._loop(session, batches, task)
                    self.account.doing("leaving")
        except LearnerInUse:
            self.mailbox = None  # the last word under this name belongs to the other process
            raise

    def _loop(self, session: TrainingSession, batches: Iterable[Batch], task: Task) -> None:
        trainer = self.manifest.spec.trainer
        self.account.phase = "training"
        self.reporter.start()
        rule = Rule(self.device, trainer.micro_batch, trainer.clip_norm, autocast_type(trainer.precision, self.device))
        slow = slowness(self.manifest, self.place, self.options.slowdown)
        pace = pace_for(slow, self.device, self._halted.wait)
        train(self.account.watched(batches), task, session, rule, done=partial(self._done, task), pace=pace)

    def _done(self, task: Task, trained: Trained) -> None:
        trainer = self.manifest.spec.trainer
        self.account.trained(step=trained.step, samples=trained.samples)
        if self.account.batches % trainer.log_every == 0:
            self.reporter.step(trained)
        if trainer.evaluate_every and self.account.batches % trainer.evaluate_every == 0:
            self._evaluate(task)

    def _evaluate(self, task: Task) -> None:
        if task.evaluate is None or self.interruption.stopping.is_set() or self.evaluated_at == self.account.batches:
            return
        self.evaluated_at = self.account.batches
        self.account.doing("evaluating")
        loss = task.evaluate(task.model)
        self.account.held_out_loss = loss
        self.reporter.held_out(loss)

    def _live(self) -> bool:
        loading = self.queue is not None and self.queue.alive
        account = self.account
        return account.activity.alive(now=account.now(), loading=loading, stall_seconds=STALL_SECONDS)

    # Leaving.

    def _leave(self, session: TrainingSession, mailbox: Store, task: Task) -> None:
        if self.interruption.stopping.is_set():
            self.account.phase = "stopped"
            return
        exchanged = session.statistics
        if exchanged is not None and self.account.batches:
            self.evaluated_at = None  # the model now holds the run's versions
        self._evaluate(task)
        self.account.doing("leaving")
        if exchanged is None and self.account.batches:
            self._patience().call(lambda: write_model(mailbox, self.options.learner_id, task.model))
        if exchanged is not None and exchanged.final_samples:
            self.account.final_held_out_loss = self.account.held_out_loss
            self.reporter.final_model(exchanged.final_samples, self.account.final_held_out_loss)
        self.account.phase = "finished"

    def _finished(self) -> Exit:
        self._say_farewell(patient=True)
        progress = self.account.progress()
        self.reporter.progress(f"finished: {progress.consumed} units, {progress.batches} batches")
        return Exit.OK

    def _stopped(self) -> Exit:
        number = self.interruption.signal
        self.account.phase = "stopped"
        self.account.message = f"stopped by {number.name if number else 'request'}"
        self._say_farewell(patient=True)
        self.reporter.progress(self.account.message)
        return Exit(self.interruption.exit_code)

    def _failed(self, message: str, unforeseen: BaseException | None) -> None:
        self.account.phase = "failed"
        self.account.message = message
        if unforeseen is not None or self.options.log_format == "json":  # else it is told on standard error, once
            emit("failed", message, logging.ERROR, error=unforeseen)
        self._say_farewell(patient=False)

    def _say_farewell(self, *, patient: bool) -> None:
        self.account.doing("leaving")
        progress = self.last_words.write()
        mailbox = self.mailbox
        if mailbox is None:
            return
        write = partial(write_left, mailbox, self.options.learner_id, progress)
        try:
            self._patience().call(write) if patient else write()
        except (MailboxError, Stopped) as error:
            emit("warning", f"the farewell could not be written: {error}", logging.WARNING)

    def _last_beat(self, heartbeat: Heartbeat) -> None:
        if self.mailbox is None:
            return
        try:
            heartbeat.beat()
        except MailboxError as error:
            emit("warning", f"the last heartbeat could not be written: {error}", logging.WARNING)

    def _cut_off(self, message: str) -> None:
        self.account.phase = "stopped"
        self.account.message = message
        self.last_words.write()

    def _patience(self) -> Patience:
        return Patience(self.manifest.spec.trainer.outage_seconds, self.interruption.stopping.wait)


def told(error: BaseException, manifest: GradientRun) -> BaseException:
    """Return a known error in the user's words; others as they are."""
    match error:
        case torch.OutOfMemoryError():
            size = manifest.spec.trainer.micro_batch
            return OutOfMemory(
                f"the GPU's memory does not hold a micro-batch of {size} sequences: lower spec.trainer.microBatch, "
                f"or use a smaller model ({str(error).splitlines()[0]})"
            )
        case InvalidKey():
            return UserError(str(error))
        case _:
            return error
