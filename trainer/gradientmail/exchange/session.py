"""The session: asynchronous exchange of parameters with the other nodes of a run, round any training loop.

Relies on a mailbox whose `put_if_absent` is atomic and whose listings show what was created
before. `step` never waits for the store or another node: it counts, and at most enqueues copies
within the device and additions. Everything else happens on a background thread, and on some that
make requests for it at the same time.

How it fails: a store that does not answer delays the exchange, not the training, until
`outage_seconds` have passed; then `step` raises MailboxUnavailable. Damaged objects are refused by
name and logged. A node that dies leaves nothing that others wait for longer than their patience
in two rounds of each fragment. See docs/protocol.md.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

import torch
from torch import nn

from gradientmail.exchange.assembling import totals, write_final
from gradientmail.exchange.blobs import BlobStore
from gradientmail.exchange.closing import Timing
from gradientmail.exchange.driver import REQUESTS_AT_ONCE, Driver
from gradientmail.exchange.joining import found_or_read, join
from gradientmail.exchange.keys import member_key
from gradientmail.exchange.learner import Learner
from gradientmail.exchange.memory import SMALLEST_BYTES, give_back
from gradientmail.exchange.options import Options, agreement, check
from gradientmail.exchange.parameters import Parameters
from gradientmail.exchange.records import Version
from gradientmail.exchange.replica import Replica
from gradientmail.exchange.requests import (
    Adopt,
    Answer,
    Create,
    Fetch,
    Found,
    Instruction,
    Merge,
    Merging,
    Publish,
    Refused,
    Request,
    Take,
)
from gradientmail.exchange.statistics import Counts, ExchangeObserver, ExchangeStatistics, Silent
from gradientmail.mailbox import Mailbox, MailboxError, check_key
from gradientmail.patterns.retrying import Patience, Stopped
from gradientmail.patterns.shared_queue import LearnerInUse

logger = logging.getLogger(__name__)

POLLS_PER_ROUND = 20
SHORTEST_POLL_SECONDS, LONGEST_POLL_SECONDS = 0.05, 5.0
ROOMY_BYTES = 64 << 20
"""Parameters of at most so many bytes have their fragments at work side by side, larger ones one after the other.

For these the bandwidth counts and memory is dear, and rounds that go side by side come to fall together, as does
their traffic.
"""
FAREWELL_SECONDS = 5.0
"""For the last requests of a node that leaves, after its time has run out."""


class Session:
    """A context manager round the training loop. Used once; see `__init__` for the options.

    `step` and leaving the block belong to the training thread; `statistics` may be read from any.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        mailbox: Mailbox,
        learner_id: str,
        sync_every: int = 50,
        fragments: int = 8,
        outer_lr: float = 1.0,
        outer_momentum: float = 0.5,
        transfer_dtype: torch.dtype | str = torch.bfloat16,
        patience_seconds: float = 30.0,
        takeover_seconds: float | None = None,
        outage_seconds: float = 900.0,
        flush_seconds: float = 30.0,
        poll_seconds: float | None = None,
        observer: ExchangeObserver | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take note of the model and the options; nothing is read or written yet.

        model: any module. Its parameters that need gradients are exchanged, tied ones once, in
            float32 or rounded to `transfer_dtype`; buffers and frozen parameters stay the node's own.
            It must be on its device, and keep its parameters in place, before the block is entered.
        mailbox: the run's own prefix, the same on every node.
        learner_id: this process alone, ever, under this prefix.
        sync_every: own optimizer steps after which a node opens the next round of a fragment.
        fragments: into how many parts of about equal size the parameters are split; at most one
            per parameter. Their rounds are staggered.
        outer_lr, outer_momentum: of the outer SGD with Nesterov momentum, which grows over the
            first 400 steps of the fastest node.
        transfer_dtype: torch.bfloat16 or torch.float32, or its name.
        patience_seconds: how long a round stays open for contributions of nodes that take part.
        takeover_seconds: how much longer each further node waits before it closes the round itself;
            None: as long as `patience_seconds`.
        outage_seconds: how long the store may not answer before `step` raises MailboxUnavailable.
        flush_seconds: how long leaving the block may wait until this node's last steps are merged.
        poll_seconds: how often to look for rounds; None: a twentieth of the time between them so far,
            or of `sync_every` steps before there were any, between 0.05 s and 5 s.
        observer: told of each event, not in `step`.
        clock: seconds that only advance, for patience.

        sync_every, fragments, outer_lr, outer_momentum and transfer_dtype must be the same on every
        node of a run. Raises ValueError for an option out of range or a model that cannot be exchanged.
        """
        self._options = Options(
            patience_seconds,
            patience_seconds if takeover_seconds is None else takeover_seconds,
            outage_seconds,
            flush_seconds,
            poll_seconds,
        )
        check("learner_id", repr(learner_id), bool(learner_id) and "/" not in learner_id, "a name without '/'")
        check_key(member_key(learner_id))
        self._model = model
        self._mailbox = mailbox
        self._learner_id = learner_id
        self._agreement = agreement(
            sync_every=sync_every,
            fragments=fragments,
            outer_lr=outer_lr,
            outer_momentum=outer_momentum,
            transfer_dtype=transfer_dtype,
        )
        Parameters(model, fragments)  # a model that cannot be exchanged is refused here
        self._observer = observer or Silent()
        self._clock = clock
        self._counts = Counts()
        self._events: deque[Adopt] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._exchange, name="session-exchange", daemon=True)
        self._entered_at: float | None = None
        self._learner: Learner | None = None
        self._hurry = threading.Event()
        self._leave_by = math.inf
        self._flush_until = math.inf

    @property
    def statistics(self) -> ExchangeStatistics:
        """The counts so far."""
        learner, counts = self._learner, self._counts
        if learner is None:
            return ExchangeStatistics()
        return ExchangeStatistics(
            steps=learner.work.steps,
            samples=learner.work.samples,
            contributions=counts.contributions,
            merged=counts.merged,
            missed=counts.missed,
            adopted=counts.adopted,
            skipped=counts.skipped,
            closed=counts.closed,
            refused=counts.refused,
            versions=tuple(chain.anchor.version for chain in learner.chains),
            staleness_steps=counts.staleness_steps,
            staleness_steps_total=counts.staleness_steps_total,
            sent_bytes=self._blobs.sent_bytes,
            received_bytes=self._blobs.received_bytes,
            requests=self._driver.requests,
            blocked_seconds=counts.blocked_seconds,
            final_samples=counts.final_samples,
        )

    @property
    def alive(self) -> bool:
        """Whether the background thread is running."""
        return self._thread.is_alive()

    def step(self, samples: int) -> None:
        """Count one optimizer step over `samples`; adopt what is ready, copy what is due. Waits for nobody.

        Raises ValueError if there are no samples, RuntimeError outside the block, and what ended the
        background thread: MailboxUnavailable, another error of the mailbox, or Diverged.
        """
        start = time.perf_counter()
        if samples < 1:
            raise ValueError(f"samples is {samples}: an optimizer step covers at least 1")
        if self._failure is not None:
            raise self._failure
        if self._learner is None or self._stop.is_set():
            raise RuntimeError("a session must be entered with `with` before its first step")
        with self._lock:
            instructions = self._learner.stepped(samples)
            self._obey(instructions)
        if instructions:
            self._wake.set()
        self._counts.blocked_seconds += time.perf_counter() - start

    def leave_within(self, seconds: float) -> None:
        """Give up joining, or leave the block within so many seconds from now. May be called from any thread.

        Training goes on until the block is left. What does not answer within the time is given up,
        the last requests included; one that is under way is waited for.
        """
        self._leave_by = min(self._leave_by, self._clock() + seconds)
        self._hurry.set()

    def __enter__(self) -> Self:
        """Join the run, or found it: blocks until the newest versions have been loaded into the model.

        Raises ExchangeMismatch if this node's model or options are not the run's, ExchangeUnreadable if the
        run's versions are damaged, LearnerInUse for a learner ID used before, Stopped after `leave_within`,
        and what the mailbox raises, MailboxUnavailable after `outage_seconds`.
        """
        if self._entered_at is not None:
            raise RuntimeError("a session can be entered once: make another")
        self._entered_at = self._clock()
        parameters = Parameters(self._model, self._agreement.fragments)
        self._prepare(parameters)
        try:
            founding = self._driver.hold(found_or_read(self._learner_id, self._agreement, parameters.layout))
            process = str(uuid.uuid4())
            anchors = self._driver.hold(join(self._learner_id, process, founding, self._in_use, self._roomy))
        except BaseException:
            self._close()
            raise
        self._replica.start()
        timing = Timing(self._options.patience_seconds, self._options.takeover_seconds)
        self._driver.patience, self._driver.given_up = self._patience(self._stop), self._stop.is_set
        self._learner = Learner(self._learner_id, founding, anchors, timing, self._clock, self._roomy)
        self._joined = tuple(anchor.version for anchor in anchors)
        self._thread.start()
        return self

    def _prepare(self, parameters: Parameters) -> None:
        self._roomy = parameters.bytes <= ROOMY_BYTES
        self._gives_back = parameters.bytes >= SMALLEST_BYTES
        at_once = REQUESTS_AT_ONCE if self._roomy else 1
        self._blobs = BlobStore(self._mailbox, parameters.layout, lambda request: self._driver.call(request), at_once)
        self._replica = Replica(self._learner_id, parameters, self._blobs, self._agreement)
        self._driver = Driver(
            self._mailbox, self._replica, self._patience(self._hurry), self._lock, self._told, self._hurry.is_set
        )

    def _close(self) -> None:
        self.leave_within(0.0)  # after an interrupt, requests of other threads may still be tried
        self._driver.close()
        self._blobs.close()

    def _patience(self, until: threading.Event) -> Patience:
        return Patience(self._options.outage_seconds, until.wait, clock=self._clock)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the run. Without an error, first wait up to `flush_seconds` until this node's last steps are merged.

        The model then holds the newest versions, and the last node to leave writes
        `model/final.safetensors`. If this node's steps could not be merged in time, it does so without
        them. With an error, what has not been merged is given up. Raises what had ended the
        background thread, if nobody has seen it.
        """
        self._stop.set()
        self._wake.set()
        self._thread.join()
        whole = error is None and self._failure is None
        self._flush_until = self._clock() + (self._options.flush_seconds if whole else 0.0)
        try:
            self._leave(whole)
        except Stopped:
            logger.warning("this node has left the exchange without a last word: its time had run out")
        except MailboxError as unavailable:
            logger.warning("this node could not leave the exchange in good order: %s", unavailable)
        finally:
            self._close()
        if error is None and self._failure is not None:
            raise self._failure

    # On the training thread, under the lock; or on the leaving one, alone.

    def _obey(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Take(fragment):
                    self._replica.take(fragment)
                case Adopt(fragment, adoption):
                    self._replica.adopt(fragment, adoption)
                    self._events.append(instruction)

    # Leaving.

    def _leave(self, whole: bool) -> None:
        learner = self._learner
        assert learner is not None
        learner.leaving = True
        learner.timing = learner.timing.hurried(max(0.0, self._flush_by() - self._clock()))
        try:
            self._flush(learner)
        finally:
            last = self._part(learner)
        if whole and not learner.settled:
            logger.warning("this node has left the exchange before its last steps were merged")
        if learner.settled or (whole and last):
            self._replica.settle()
            if last:
                self._write_final(tuple(chain.anchor for chain in learner.chains))

    def _flush(self, learner: Learner) -> None:
        self._driver.given_up = lambda: self._clock() >= self._flush_by()
        self._driver.patience = Patience(math.inf, self._pause_until(self._flush_by), clock=self._clock)
        with contextlib.suppress(Stopped):
            while not learner.settled and self._clock() < self._flush_by():
                self._settle_once(learner)

    def _settle_once(self, learner: Learner) -> None:
        self._obey(learner.stepped(0))
        acted = self._driver.hold(learner.tick())
        self._obey(learner.stepped(0))
        self._tell_adoptions()
        if not acted and not learner.settled:
            self._pause_until(self._flush_by)(SHORTEST_POLL_SECONDS)

    def _part(self, learner: Learner) -> bool:
        deadline = min(self._clock() + FAREWELL_SECONDS, self._leave_by)
        self._driver.given_up = lambda: False
        self._driver.patience = Patience(math.inf, self._pause_until(lambda: deadline), clock=self._clock)
        return self._driver.hold(learner.part())

    def _write_final(self, versions: tuple[Version, ...]) -> None:
        if self._driver.call(lambda: write_final(self._mailbox, self._model, versions)):
            self._counts.final_samples = totals(versions).work.samples

    def _flush_by(self) -> float:
        return min(self._flush_until, self._leave_by - FAREWELL_SECONDS)

    def _pause_until(self, deadline: Callable[[], float]) -> Callable[[float], bool]:
        """Return a pause that ends at the deadline, which `leave_within` may draw nearer; then it says to give up."""

        def pause(seconds: float) -> bool:
            wait = time.sleep if self._hurry.is_set() else self._hurry.wait
            wait(max(0.0, min(seconds, deadline() - self._clock())))
            return self._clock() >= deadline()

        return pause

    # On the background thread.

    def _exchange(self) -> None:
        assert self._learner is not None
        try:
            while not self._stop.is_set():
                acted = self._driver.hold(self._learner.tick())
                self._tell_adoptions()
                if not acted:
                    self._wake.wait(self._poll_seconds(self._learner))
                self._wake.clear()
        except Stopped:
            pass
        except BaseException as failure:  # noqa: BLE001 - whatever it is, it belongs to the training thread
            self._failure = failure

    def _poll_seconds(self, learner: Learner) -> float:
        if self._options.poll_seconds is not None:
            return self._options.poll_seconds
        assert self._entered_at is not None
        advanced = max(chain.newest - joined for chain, joined in zip(learner.chains, self._joined, strict=True))
        elapsed = self._clock() - self._entered_at
        return poll_seconds_after(elapsed, learner.work.steps, self._agreement.sync_every, advanced)

    def _in_use(self) -> LearnerInUse:
        return LearnerInUse.named(self._learner_id)

    def _told(self, request: Request, answer: Answer) -> None:
        if self._gives_back and isinstance(request, Found | Fetch | Publish | Merge):
            give_back()
        match request, answer:
            case Merge(anchor), Merging(merged=merged):
                self._counts.closed += 1
                self._observer.closed(anchor.fragment, anchor.version + 1, len(merged))
            case Create(key), _ if "/contributions/" in key:
                fragment, version = key.split("/")[2:4]
                self._counts.contributions += 1
                self._observer.contributed(int(fragment), int(version))
            case Refused(key, why), _:
                self._counts.refused += 1
                logger.warning("refused an object of the exchange: %s", why)
                self._observer.refused(key, why)
            case _:
                pass

    def _tell_adoptions(self) -> None:
        while self._events:
            event = self._events.popleft()
            adoption, counts = event.adoption, self._counts
            counts.adopted += 1
            counts.merged += adoption.merged
            counts.missed += adoption.missed
            counts.skipped += adoption.skipped
            counts.staleness_steps = adoption.staleness
            counts.staleness_steps_total += adoption.staleness
            self._observer.adopted(event.fragment, adoption.version.version, adoption.merged, adoption.staleness)


def poll_seconds_after(elapsed: float, steps: int, sync_every: int, advanced: int) -> float:
    """Return how often to look for rounds: a part of the time between them so far, in seconds. Pure.

    The fastest node sets the pace of the rounds; a slow one learns it from how far the versions have advanced.
    """
    rounds = max(1.0, steps / sync_every, advanced)
    return min(max(elapsed / rounds / POLLS_PER_ROUND, SHORTEST_POLL_SECONDS), LONGEST_POLL_SECONDS)
