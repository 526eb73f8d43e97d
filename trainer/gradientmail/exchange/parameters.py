"""The trained parameters of a model as fragments, and their way from and to the device.

Runs on any device. On CUDA, copies to and from the host run on a stream of their own, driven by
the exchange's threads; the training thread only enqueues copies within the device and additions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradientmail.exchange.blobs import split
from gradientmail.exchange.records import TensorShape

COMPILED = "_orig_mod."
"""What torch.compile puts into the names of parameters."""


def plain_name(name: str) -> str:
    """Return a parameter's name as it is without torch.compile."""
    return name.replace(COMPILED, "")


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that need gradients, tied ones once, under their first name.

    Raises ValueError if there are none, or one that cannot be exchanged.
    """
    found = {plain_name(name): item for name, item in model.named_parameters() if item.requires_grad}
    if not found:
        raise ValueError("the model has no parameter that needs gradients: there is nothing to exchange")
    for name, item in found.items():
        if isinstance(item, nn.parameter.UninitializedParameter) or item.is_meta:
            raise ValueError(f"parameter {name!r} has no values yet: initialize the model before making a Session")
        if not item.is_floating_point() or item.layout != torch.strided:
            raise ValueError(
                f"parameter {name!r} is {item.layout} {item.dtype}: only dense real parameters are exchanged"
            )
    return found


def fragmented(sizes: Sequence[int], fragments: int) -> list[list[int]]:
    """Return the positions in each of at most `fragments` fragments of about equal size, in rising order. Pure.

    The largest parameter goes first, each to the smallest fragment so far.
    """
    parts: list[list[int]] = [[] for _ in range(min(fragments, len(sizes)))]
    totals = [0] * len(parts)
    for position in sorted(range(len(sizes)), key=lambda index: (-sizes[index], index)):
        smallest = totals.index(min(totals))
        parts[smallest].append(position)
        totals[smallest] += max(1, sizes[position])
    return [sorted(part) for part in parts]


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive parameters of a fragment on one device, and their place in its flat tensor."""

    device: torch.device
    parameters: tuple[nn.Parameter, ...]
    start: int
    stop: int

    def views(self, flat: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Yield each parameter and its view of a flat tensor of this segment."""
        parts = torch.split(flat, [item.numel() for item in self.parameters])
        return ((item, part.view(item.shape)) for item, part in zip(self.parameters, parts, strict=True))


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A fragment's values in float32, a flat tensor per segment, and when each is complete."""

    flats: tuple[Tensor, ...]
    events: tuple[torch.cuda.Event | None, ...]


class Parameters:
    """A model's trained parameters in fragments.

    `copied`, `add` and `load` belong to the training thread and return once the work is enqueued
    on the device; `to_host` and `to_device` belong to the exchange's threads and block.
    """

    def __init__(self, model: nn.Module, fragments: int) -> None:
        named = trained_parameters(model)
        names, items = list(named), list(named.values())
        parts = fragmented([item.numel() for item in items], fragments)
        self.layout = tuple(
            tuple(
                TensorShape(names[at], tuple(items[at].shape), str(items[at].dtype).removeprefix("torch."))
                for at in part
            )
            for part in parts
        )
        self._segments = tuple(tuple(_segments([items[at] for at in part])) for part in parts)
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    @property
    def bytes(self) -> int:
        """Size of the parameters as the model holds them."""
        return sum(
            item.numel() * item.element_size()
            for segments in self._segments
            for segment in segments
            for item in segment.parameters
        )

    @torch.no_grad()
    def copied(self, fragment: int) -> OnDevice:
        """Copy a fragment within its device."""
        flats = [
            torch.cat([item.detach().reshape(-1).float() for item in segment.parameters])
            for segment in self._segments[fragment]
        ]
        return OnDevice(tuple(flats), tuple(map(_recorded, flats)))

    def to_host(self, copy: OnDevice) -> Tensor:
        """Return a copy as one flat CPU tensor."""
        parts = [self._on_host(flat, event) for flat, event in zip(copy.flats, copy.events, strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def to_device(self, fragment: int, flat: Tensor) -> OnDevice:
        """Bring a flat CPU tensor to the devices of a fragment's parameters."""
        parts = [self._on_device(flat[item.start : item.stop], item.device) for item in self._segments[fragment]]
        return OnDevice(tuple(part for part, _ in parts), tuple(event for _, event in parts))

    @torch.no_grad()
    def add(self, fragment: int, values: OnDevice) -> None:
        """Add values to a fragment's parameters in place."""
        for parameter, value in self._waited(fragment, values):
            parameter.add_(value)

    @torch.no_grad()
    def load(self, fragment: int, values: OnDevice) -> None:
        """Overwrite a fragment's parameters in place."""
        for parameter, value in self._waited(fragment, values):
            parameter.copy_(value)

    def _waited(self, fragment: int, values: OnDevice) -> Iterator[tuple[nn.Parameter, Tensor]]:
        for segment, flat, event in zip(self._segments[fragment], values.flats, values.events, strict=True):
            if event is not None:
                current = torch.cuda.current_stream(flat.device)
                current.wait_event(event)
                flat.record_stream(current)
            yield from segment.views(flat)

    def _stream(self, device: torch.device) -> torch.cuda.Stream:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        return self._streams[device]

    def _on_host(self, flat: Tensor, event: torch.cuda.Event | None) -> Tensor:
        if event is None:
            return flat.cpu()
        stream = self._stream(flat.device)
        host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)
        with torch.cuda.stream(stream):
            stream.wait_event(event)
            host.copy_(flat, non_blocking=True)
            flat.record_stream(stream)
        stream.synchronize()
        return host

    def _on_device(self, flat: Tensor, device: torch.device) -> tuple[Tensor, torch.cuda.Event | None]:
        if device.type != "cuda":
            return flat.to(device), None
        stream = self._stream(device)
        with torch.cuda.stream(stream):
            moved = flat.pin_memory().to(device, non_blocking=True)
            event = stream.record_event()
        stream.synchronize()
        return moved, event


def named_views(flats: Sequence[Tensor], layout: Sequence[Sequence[TensorShape]]) -> dict[str, Tensor]:
    """Return every exchanged parameter by name, as views of the fragments' flat tensors."""
    return {name: view for flat, shapes in zip(flats, layout, strict=True) for name, view in split(flat, shapes)}


def _segments(items: Sequence[nn.Parameter]) -> Iterator[Segment]:
    start = 0
    for device, group in itertools.groupby(items, key=lambda item: item.device):
        part = tuple(group)
        stop = start + sum(item.numel() for item in part)
        yield Segment(device, part, start, stop)
        start = stop


def _recorded(flat: Tensor) -> torch.cuda.Event | None:
    return torch.cuda.current_stream(flat.device).record_event() if flat.is_cuda else None
