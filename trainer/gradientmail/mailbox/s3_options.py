"""How to reach an S3 store. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class S3Options:
    """How to reach an S3 store. What is None comes from the boto3 chain (environment, profile, pod's role)."""

    endpoint_url: str | None = None
    region: str | None = None
    checksums: Literal["when_supported", "when_required"] = "when_supported"
    """`when_required` suits stores that reject the checksums newer clients send."""
    addressing_style: Literal["auto", "path", "virtual"] = "auto"
    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 20.0
    attempts: int = 4
    """Attempts of one request, with jittered back-off, before MailboxUnavailable."""
    connections: int = 32

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.connections < 1:
            raise ValueError(f"attempts={self.attempts}, connections={self.connections}: both must be 1 or more")
        if self.connect_timeout_seconds <= 0 or self.read_timeout_seconds <= 0:
            raise ValueError(f"{self}: time-outs must be above 0 seconds")
