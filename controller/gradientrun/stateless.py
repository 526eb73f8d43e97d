"""kopf's two storages, which store nothing: the controller keeps no state in objects.

They also save most of kopf's work for an event. By default it copies every object several times
to compare it with what it has stored, for handlers that are not used here.
"""

from __future__ import annotations

from typing import Any

import kopf


class NothingHandled(kopf.DiffBaseStorage):
    """Remembers no earlier form of an object."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Return that nothing about an object counts as a change."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        """Return that nothing has been stored."""
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""


class NothingInProgress(kopf.ProgressStorage):
    """Remembers no progress of handlers."""

    def fetch(self, **_: Any) -> None:
        """Return that nothing has been stored."""

    def store(self, **_: Any) -> None:
        """Store nothing."""

    def purge(self, **_: Any) -> None:
        """Remove nothing."""

    def touch(self, **_: Any) -> None:
        """Change nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return the essence as it is."""
        return essence
