"""A GradientRun as the controller sees it: identity, spec and the last status written. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from gradientmail.run import Pool, Spec
from gradientrun.names import QUEUE_LABEL, mailbox_prefix

Manifest = dict[str, Any]
"""A Kubernetes object as JSON."""


@dataclass(frozen=True, slots=True)
class Run:
    """One GradientRun. `spec` is None when the API server stores one that this version cannot read."""

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    created: datetime
    spec: Spec | None
    spec_problem: str = ""
    """Why `spec` is None, one sentence."""
    status: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    deleting: bool = False

    @property
    def attempt(self) -> int:
        """The attempt that the user asks for."""
        return self.spec.attempt if self.spec else int(self.status.get("attempt") or 1)

    @property
    def pools(self) -> list[Pool]:
        """The pools of the spec."""
        return list(self.spec.nodes) if self.spec else []

    @property
    def suspended(self) -> bool:
        """Whether the user asks for no nodes at present."""
        return self.spec is not None and self.spec.suspend

    @property
    def queue(self) -> str:
        """Kueue's queue that the run is submitted to, or nothing."""
        return self.labels.get(QUEUE_LABEL, "")

    @property
    def prefix(self) -> str:
        """The mailbox of the attempt asked for; empty when the spec names no bucket."""
        if self.spec is None or self.spec.mailbox is None:
            return ""
        return mailbox_prefix(
            self.spec.mailbox.url, namespace=self.namespace, run=self.name, uid=self.uid, attempt=self.attempt
        )


def read_run(manifest: Manifest) -> Run:
    """Return the run that an object of the API server describes. Never raises on a spec it cannot read."""
    metadata = manifest["metadata"]
    spec, problem = _read_spec(manifest.get("spec") or {})
    return Run(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=int(metadata.get("generation", 0)),
        resource_version=metadata.get("resourceVersion", ""),
        created=read_time(metadata["creationTimestamp"]),
        spec=spec,
        spec_problem=problem,
        status=manifest.get("status") or {},
        labels=metadata.get("labels") or {},
        deleting="deletionTimestamp" in metadata,
    )


def _read_spec(spec: Manifest) -> tuple[Spec | None, str]:
    try:
        parsed = Spec.model_validate(spec)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in ("spec", *first["loc"]))
        return None, f"{where}: {first['msg']}"
    if parsed.mailbox is None:
        return (
            None,
            "spec.mailbox is missing: name the bucket that the nodes share, as in mailbox.url: s3://bucket/runs",
        )
    if not parsed.mailbox.url.startswith("s3://"):
        return None, f"spec.mailbox.url is {parsed.mailbox.url!r}: nodes on a cluster need an s3:// address"
    return parsed, ""


def read_time(text: str) -> datetime:
    """Return the time that Kubernetes wrote."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def is_recent(time: datetime, now: datetime, span: timedelta) -> bool:
    """Whether a time is less than a span ago. Clocks differ, and are set: far in the future is not recent either."""
    return abs(now - time) < span


def write_time(time: datetime) -> str:
    """Return the time as Kubernetes writes it, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
