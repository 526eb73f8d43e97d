"""A run's model as one file: written by the last node to leave, or put together from the newest versions.

Relies on a mailbox whose listings show what was created before. A run that is going on replaces
its versions all the time; one that vanishes while it is read makes the reading start over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch
from safetensors.torch import save
from torch import Tensor, nn

from gradientmail.exchange.blobs import BlobRefused, BlobStore
from gradientmail.exchange.joining import ExchangeUnreadable
from gradientmail.exchange.keys import EXCHANGE, RUN, STATE_AFTER, version_key
from gradientmail.exchange.parameters import named_views, plain_name
from gradientmail.exchange.records import Founding, RecordRefused, Share, Version, Work, first_version
from gradientmail.exchange.view import view_of
from gradientmail.exits import UserError
from gradientmail.layout import FINAL
from gradientmail.mailbox import Mailbox

ATTEMPTS = 20


class NoExchange(UserError):
    """There is no run with an exchange at this place."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What a model was made from: the work that is in every one of its fragments."""

    work: Work
    versions: tuple[int, ...]
    contributors: Mapping[str, Work]

    def metadata(self) -> dict[str, str]:
        """Return the totals as the metadata of a safetensors file."""
        return {
            "format": "pt",
            "steps": str(self.work.steps),
            "samples": str(self.work.samples),
            "versions": json.dumps(self.versions),
            "contributors": json.dumps({name: work._asdict() for name, work in self.contributors.items()}),
        }


def totals(versions: tuple[Version, ...]) -> Totals:
    """Return what all of the versions hold."""
    none = Share(0, 0, 0)
    names = sorted({name for version in versions for name in version.shares})
    shares = {name: [version.shares.get(name, none) for version in versions] for name in names}
    contributors = {
        name: Work(min(share.steps for share in found), min(share.samples for share in found))
        for name, found in shares.items()
    }
    work = Work(sum(work.steps for work in contributors.values()), sum(work.samples for work in contributors.values()))
    return Totals(work, tuple(version.version for version in versions), contributors)


def metadata_of(data: bytes) -> dict[str, str]:
    """Return the metadata of a safetensors file; none if it states none."""
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return {str(name): str(value) for name, value in header["__metadata__"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def samples_in(data: bytes) -> int:
    """Return from how many samples the metadata of a model says that it was made; 0 if it does not say."""
    told = metadata_of(data).get("samples", "")
    return int(told) if told.isdecimal() else 0


def newest_model(mailbox: Mailbox) -> tuple[bytes, bool]:
    """Return a run's model as safetensors bytes, and whether it is the final one.

    The newest versions are put together where there is no final model, or where the run has gone on
    since. Blocks for the download. Raises what `assembled` raises.
    """
    final = mailbox.get(FINAL)
    if final is not None and samples_in(final) >= _newest_samples(mailbox):
        return final, True
    return assembled(mailbox), False


def _newest_samples(mailbox: Mailbox) -> int:
    """Return the samples in a run's newest versions; 0 if they cannot be told."""
    try:
        versions = newest_versions(mailbox, read_founding(mailbox))
    except (NoExchange, ExchangeUnreadable):
        return 0
    return totals(versions).work.samples if versions else 0


def write_final(mailbox: Mailbox, model: nn.Module, versions: tuple[Version, ...]) -> bool:
    """Write `model/final.safetensors`, in place of one made from fewer samples; return whether it is of these versions.

    The model must hold these versions. Tied parameters are written once, under their first name. A
    model of no samples is not written. May be repeated when the answer to it was lost.
    """
    made_from = totals(versions)
    samples = made_from.work.samples
    before = mailbox.get(FINAL)
    if before is not None and samples_in(before) >= samples:
        return samples_in(before) == samples
    if samples == 0:
        return False
    if before is not None:
        mailbox.delete([FINAL])
    mailbox.put_if_absent(FINAL, model_bytes(model, made_from.metadata()))
    return True


def model_bytes(model: nn.Module, metadata: Mapping[str, str]) -> bytes:
    """Return parameters and lasting buffers as safetensors; `safetensors.torch.load_model` reads them back."""
    tensors: dict[str, Tensor] = {}
    names: dict[object, str] = {}
    aliases: dict[str, str] = {}
    for compiled_name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            continue
        name = plain_name(compiled_name)
        same = (value.device, value.data_ptr(), value.shape, value.stride()) if value.numel() else name
        first = names.setdefault(same, name)
        if first == name:
            tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        else:
            aliases[name] = first
    return bytes(save(tensors, metadata={**aliases, **metadata}))


def assembled(mailbox: Mailbox) -> bytes:
    """Return the newest versions of a run as safetensors bytes: the exchanged parameters alone, no buffers.

    Blocks for the download. Raises NoExchange if there is no run, ExchangeUnreadable if a version is
    damaged or vanishes again and again, and what the mailbox raises.
    """
    founding = read_founding(mailbox)
    blobs = BlobStore(mailbox, founding.layout)
    for _ in range(ATTEMPTS):
        versions = newest_versions(mailbox, founding)
        if versions is None:
            continue
        try:
            flats = [blobs.read(item.fragment, item.version, item.parameters, torch.float32) for item in versions]
        except BlobRefused as why:
            raise ExchangeUnreadable(f"the run's newest versions cannot be assembled: {why}") from None
        found = [flat for flat in flats if flat is not None]
        if len(found) == len(flats):
            return _file(founding, found, totals(versions))
    raise ExchangeUnreadable("the run replaced its versions before they could be downloaded: try again")


def read_founding(mailbox: Mailbox) -> Founding:
    """Return what the run's first node set. Raises NoExchange if there is none, or it is damaged."""
    data = mailbox.get(RUN)
    if data is None:
        raise NoExchange(
            f"the mailbox holds no {RUN}: give the folder or the URL of a run that trains with the exchange"
        )
    try:
        return Founding.from_json(RUN, data)
    except RecordRefused as why:
        raise NoExchange(str(why)) from None


def newest_versions(mailbox: Mailbox, founding: Founding) -> tuple[Version, ...] | None:
    """Return the newest version of every fragment, None if one vanished meanwhile. Raises ExchangeUnreadable."""
    view = view_of(mailbox.list(EXCHANGE, after=STATE_AFTER), len(founding.layout))
    versions: list[Version] = []
    for fragment, rounds in enumerate(view.fragments):
        version = _version(mailbox, founding, fragment, rounds.newest)
        if version is None:
            return None
        versions.append(version)
    return tuple(versions)


def _version(mailbox: Mailbox, founding: Founding, fragment: int, number: int) -> Version | None:
    if number == 0:
        return first_version(founding, fragment)
    key = version_key(fragment, number)
    data = mailbox.get(key)
    try:
        return None if data is None else Version.from_json(key, data, fragment=fragment, version=number)
    except RecordRefused as why:
        raise ExchangeUnreadable(str(why)) from None


def _file(founding: Founding, flats: list[Tensor], made_from: Totals) -> bytes:
    dtypes = {item.name: getattr(torch, item.dtype) for fragment in founding.layout for item in fragment}
    tensors = {name: value.to(dtypes[name]) for name, value in named_views(flats, founding.layout).items()}
    metadata = {**made_from.metadata(), "options": json.dumps(asdict(founding.agreement))}
    return bytes(save({name: value.clone() for name, value in tensors.items()}, metadata=metadata))
