"""The numbers of one learner: anchors, deltas and versions under way. Answers the protocol's requests about them.

Threads: `take`, `adopt` and `start` belong to the training thread, `serve` to the exchange's. The
protocol never has two threads at work on one fragment's anchor or delta at the same time.

Memory on the CPU, in bytes per parameter with bfloat16 transfer: 4 for the anchor, 2 for the delta
last offered, 2 for the step to a version not yet adopted, 4 for the outer momentum where this
learner closes the rounds; and about 16 for each fragment at work, of which a large model has one. With
float32 transfer, 4 for each of these. While a learner skips versions, 8 for a version on its way
instead of 2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradientmail.exchange.blobs import BlobRefused, BlobStore, finite
from gradientmail.exchange.chain import Adoption
from gradientmail.exchange.keys import blob_key
from gradientmail.exchange.merging import correction, delta, mean, momentum_and_step, step_without_momentum, warmed_up
from gradientmail.exchange.parameters import OnDevice, Parameters
from gradientmail.exchange.records import Agreement, Contribution, Version
from gradientmail.exchange.requests import Fetch, Fetched, Found, Founded, Merge, Merging, Publish
from gradientmail.exits import Exit, UserError

logger = logging.getLogger(__name__)


class Diverged(UserError):
    """The learner's own parameters are not finite. A failure of this node alone."""

    exit = Exit.FAILED


@dataclass(frozen=True, slots=True)
class _Ready:
    """A version on its way to the training thread."""

    changes: tuple[OnDevice, ...]
    """What is added to the learner's parameters, or, when joining, replaces them."""
    step: Tensor | None = None
    """What makes the anchor the version; or else:"""
    parameters: Tensor | None = None


@dataclass(frozen=True, slots=True)
class _Closed:
    """A version that this learner has made: it need not be downloaded."""

    digest: str
    momentum: Tensor
    step: Tensor | None
    """None once it has been adopted."""


class Replica:
    """One learner's numbers. See the module for threads and memory."""

    def __init__(self, learner: str, parameters: Parameters, blobs: BlobStore, agreement: Agreement) -> None:
        self._learner = learner
        self._parameters = parameters
        self._blobs = blobs
        self._agreement = agreement
        self._transfer: torch.dtype = getattr(torch, agreement.transfer_dtype)
        self._anchors: dict[int, Tensor] = {}
        self._steps: dict[int, Tensor] = {}
        self._copies: dict[int, OnDevice] = {}
        self._deltas: dict[int, Tensor] = {}
        self._ready: dict[int, _Ready] = {}
        self._closed: dict[int, _Closed] = {}

    @property
    def anchors(self) -> list[Tensor]:
        """The versions held, flat float32 on the CPU, by fragment."""
        return [self._anchor(fragment) for fragment in sorted(self._anchors)]

    # On the training thread.

    def take(self, fragment: int) -> None:
        """Copy a fragment within its device."""
        self._copies[fragment] = self._parameters.copied(fragment)

    def adopt(self, fragment: int, adoption: Adoption) -> None:
        """Take over the version that is ready."""
        ready = self._ready.pop(fragment)
        for change in ready.changes:
            self._parameters.add(fragment, change)
        if ready.parameters is not None:
            self._anchors[fragment] = ready.parameters
        elif ready.step is not None:
            self._steps[fragment] = ready.step
        self._copies.pop(fragment, None)
        self._deltas.pop(fragment, None)
        closed = self._closed.pop(fragment, None)
        if closed is not None and closed.digest == adoption.version.parameters:
            self._closed[fragment] = replace(closed, step=None)

    def start(self) -> None:
        """Replace the model's parameters by the versions fetched when joining."""
        for fragment, ready in self._ready.items():
            assert ready.parameters is not None
            self._parameters.load(fragment, ready.changes[0])
            self._anchors[fragment] = ready.parameters
        self._ready.clear()

    def settle(self) -> None:
        """Replace the model's parameters by the versions held, rid of rounding, and let go of everything else."""
        for fragment in self._anchors:
            self._parameters.load(fragment, self._parameters.to_device(fragment, self._anchor(fragment)))
        for held in (self._anchors, self._copies, self._deltas, self._ready, self._closed):
            held.clear()

    # On the exchange's threads.

    def serve(self, request: Found | Fetch | Publish | Merge) -> Founded | Fetched | Merging | str:
        """Answer a request of the protocol. Raises Diverged, and what the mailbox raises."""
        match request:
            case Found():
                return self._found()
            case Fetch():
                return self._fetch(request)
            case Publish(fragment, version):
                return self._publish(fragment, version)
            case Merge(anchor, contributions):
                return self._merge(anchor, contributions)

    def _found(self) -> Founded:
        digests: list[str] = []
        for fragment in range(len(self._parameters.layout)):
            flat = self._parameters.to_host(self._parameters.copied(fragment))
            digests.append(self._blobs.write(fragment, 0, flat))
        return Founded(tuple(digests))

    def _anchor(self, fragment: int) -> Tensor:
        """Return the anchor. A step that the training thread has adopted is added only now, off that thread."""
        anchor, step = self._anchors[fragment], self._steps.pop(fragment, None)
        return anchor if step is None else anchor.add_(step)

    def _fetch(self, request: Fetch) -> Fetched:
        fragment = request.version.fragment
        merged = self._deltas[fragment] if request.merged else None
        try:
            ready = self._by_step(request, merged) or self._by_parameters(request, merged)
        except BlobRefused as why:
            return Fetched(False, str(why))
        if ready is not None:
            self._ready[fragment] = ready
        return Fetched(ready is not None)

    def _by_step(self, request: Fetch, merged: Tensor | None) -> _Ready | None:
        """Return the version after the anchor by its step: half the bytes, and nothing else is held of it."""
        version, closed = request.version, self._closed.get(request.version.fragment)
        if request.anchor is None or request.anchor.version != version.version - 1:
            return None
        if closed is not None and closed.digest == version.parameters:
            step: Tensor | None = closed.step
        elif version.step is not None:
            step = self._blobs.read(version.fragment, version.version, version.step, self._transfer)
        else:
            step = None
        if step is None:
            return None
        self._anchor(version.fragment)
        parts = (step,) if merged is None else (step, merged)
        return _Ready(tuple(self._parameters.to_device(version.fragment, part) for part in parts), step=step)

    def _by_parameters(self, request: Fetch, merged: Tensor | None) -> _Ready | None:
        version = request.version
        parameters = self._blobs.read(version.fragment, version.version, version.parameters, torch.float32)
        if parameters is None:
            return None
        change = parameters
        if request.anchor is not None:
            change = correction(parameters, self._anchor(version.fragment), merged)
        return _Ready((self._parameters.to_device(version.fragment, change),), parameters=parameters)

    def _publish(self, fragment: int, version: int) -> str:
        if fragment in self._copies:  # else it is written again, for the first time was cut short
            flat = self._parameters.to_host(self._copies.pop(fragment))
            self._deltas[fragment] = self._finite(fragment, delta(self._anchor(fragment), flat, self._transfer))
        return self._blobs.write(fragment, version, self._deltas[fragment])

    def _finite(self, fragment: int, difference: Tensor) -> Tensor:
        if not finite(difference):
            name = self._parameters.layout[fragment][0].name
            raise Diverged(
                f"parameters of fragment {fragment} (the one of {name!r}) are not finite: nothing of them was sent; "
                "lower the learning rate or clip the gradients; a node started anew goes on from the run's versions"
            )
        return difference

    def _merge(self, anchor: Version, contributions: tuple[Contribution, ...]) -> Merging:
        merged: list[Contribution] = []
        refused: dict[str, str] = {}
        last = any(contribution.last for contribution in contributions)
        momentum, step = self._outer(anchor, self._deltas_of(contributions, merged, refused), merged, last)
        fragment, number = anchor.fragment, anchor.version + 1
        self._closed.pop(fragment, None)  # the momentum before this one
        written: dict[str, Callable[[], Tensor]] = {"parameters": lambda: self._anchor(fragment) + step}
        if self._agreement.outer_momentum:
            written["momentum"] = lambda: momentum
        if self._transfer != torch.float32:
            written["step"] = lambda: step
        digests = self._blobs.each(lambda made: self._blobs.write(fragment, number, made()), written.values())
        found = dict(zip(written, digests, strict=True))
        self._closed[fragment] = _Closed(found["parameters"], momentum, step)
        return Merging(**found, merged=tuple(merged), refused=refused)

    def _outer(
        self, anchor: Version, deltas: Iterator[tuple[Tensor, int]], merged: list[Contribution], last: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the next momentum and the step; nothing moves without a usable delta. Reading them fills `merged`."""
        before, options = self._anchor(anchor.fragment), self._agreement
        gradient = mean(deltas, before)
        if gradient is None:
            return self._momentum(anchor), torch.zeros_like(before, dtype=self._transfer)
        if last:
            step = step_without_momentum(gradient, lr=options.outer_lr, transfer=self._transfer)
            return self._momentum(anchor), step
        samples = [item.samples for item in merged]
        mu = warmed_up(options.outer_momentum, anchor.version, options.sync_every, samples)
        return momentum_and_step(self._momentum(anchor), gradient, lr=options.outer_lr, mu=mu, transfer=self._transfer)

    def _deltas_of(
        self, contributions: tuple[Contribution, ...], merged: list[Contribution], refused: dict[str, str]
    ) -> Iterator[tuple[Tensor, int]]:
        for item, value in zip(contributions, self._blobs.each(self._delta, contributions), strict=True):
            if isinstance(value, BlobRefused):
                refused[item.learner] = str(value)
            else:
                merged.append(item)
                yield value, item.samples

    def _delta(self, item: Contribution) -> Tensor | BlobRefused:
        if item.learner == self._learner:
            return self._deltas[item.fragment]
        try:
            value = self._blobs.read(item.fragment, item.version, item.delta, self._transfer)
        except BlobRefused as why:
            return why
        if value is None:
            return BlobRefused(f"{blob_key(item.fragment, item.version, item.delta)} does not exist")
        return value

    def _momentum(self, anchor: Version) -> Tensor:
        zero = torch.zeros_like(self._anchor(anchor.fragment))
        closed = self._closed.get(anchor.fragment)
        if anchor.momentum is None:
            return zero
        if closed is not None and closed.digest == anchor.parameters:
            return closed.momentum
        try:
            found = self._blobs.read(anchor.fragment, anchor.version, anchor.momentum, torch.float32)
        except BlobRefused as why:
            logger.warning("the outer momentum starts from zero: %s", why)
            return zero
        return zero if found is None else found
