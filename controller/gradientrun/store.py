"""The runs, Jobs and pods that the controller knows of: what the watches told, set right by lists.

A watch alone is not enough. It can die in silence, and when it starts over after a gap, deletions
within the gap are never told. So every kind is listed anew from time to time; `replace` drops what
is gone, takes what was missed, and remembers the latter as owed by the watch: a watch that never
delivers what a list has shown is dead. No thread, no clock of its own, no I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gradientrun.cluster import JOBS, PODS, RUNS, WATCHED
from gradientrun.names import RUN_LABEL
from gradientrun.observed import label, read_pod
from gradientrun.runs import Manifest

Key = tuple[str, str]
"""Namespace and name of a run."""

KEPT_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "ownerReferences",
)
KEPT_ANNOTATIONS = "batch.kubernetes.io/"
KEPT_SPEC: dict[str, tuple[str, ...]] = {JOBS: ("completions", "parallelism", "suspend"), PODS: ()}
"""Fields of a spec that are read; runs keep theirs whole."""


@dataclass(slots=True)
class _Shelf:
    objects: dict[str, Manifest] = field(default_factory=dict)
    """By UID."""
    owed: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Version and time of what a list has shown before the watch did, by UID."""
    deleted: set[str] = field(default_factory=set)
    """UIDs deleted since the list under way began."""


class Store:
    """Objects by kind, and which run each belongs to."""

    def __init__(self) -> None:
        self._shelves = {resource: _Shelf() for resource in WATCHED}
        self._children: dict[str, dict[Key, set[str]]] = {JOBS: {}, PODS: {}}
        self._runs: dict[Key, str] = {}
        self._departed: dict[Key, dict[str, Manifest]] = {}

    def known(self) -> list[Key]:
        """Return the keys of all runs."""
        return list(self._runs)

    def run(self, key: Key) -> Manifest | None:
        """Return a run."""
        uid = self._runs.get(key)
        return self._shelves[RUNS].objects.get(uid) if uid else None

    def runs(self) -> Iterator[Manifest]:
        """Return all runs."""
        return iter(list(self._shelves[RUNS].objects.values()))

    def children(self, resource: str, key: Key) -> list[Manifest]:
        """Return the Jobs or pods that carry a run's name, pods that are gone but not yet forgotten included."""
        objects = self._shelves[resource].objects
        departed = self._departed.get(key, {}).values() if resource == PODS else ()
        return [*(objects[uid] for uid in sorted(self._children[resource].get(key, ()))), *departed]

    def forget(self, key: Key, uids: Collection[str] | None = None) -> bool:
        """Forget pods that are gone, those named or all. Returns whether there were any.

        The end of a trainer and of its pod may be told within a moment, and the pod takes the trainer's last words
        with it. So a pod whose trainer has ended stays among the children until its words have been written down.
        """
        departed = self._departed.get(key, {})
        seen = [uid for uid in departed if uids is None or uid in uids]
        for uid in seen:
            del departed[uid]
        if not departed:
            self._departed.pop(key, None)
        return bool(seen)

    def put(self, resource: str, manifest: Manifest, *, watched: bool = True) -> Key | None:
        """Take an object as a watch, or an answer to a request, gives it; what is not newer is passed over.

        Returns the run that it belongs to, or None if it belongs to none or nothing is new.
        """
        shelf, uid, version = self._shelves[resource], manifest["metadata"]["uid"], _version(manifest)
        if watched and uid in shelf.owed and version >= shelf.owed[uid][0]:
            del shelf.owed[uid]
        known = shelf.objects.get(uid)
        if (known is not None and _version(known) >= version > 0) or uid in shelf.deleted:
            return None
        shelf.objects[uid] = slim(resource, manifest)
        return self._filed(resource, manifest)

    def remove(self, resource: str, manifest: Manifest) -> Key | None:
        """Take away an object that a watch says is deleted. Returns the run that it belonged to."""
        shelf, uid = self._shelves[resource], manifest["metadata"]["uid"]
        shelf.deleted.add(uid)
        shelf.owed.pop(uid, None)
        if shelf.objects.pop(uid, None) is None:
            return None
        key = self._unfiled(resource, manifest)
        if key is not None and resource == PODS and read_pod(manifest).ended is not None:
            self._departed.setdefault(key, {})[uid] = slim(resource, manifest) | {"gone": True}
        return key

    def expect_list(self, resource: str) -> None:
        """Say that a list of a kind is about to be asked for: what is deleted from now on stays deleted."""
        self._shelves[resource].deleted.clear()

    def replace(
        self, resource: str, namespace: str | None, items: Iterable[Manifest], version: str, now: float
    ) -> set[Key]:
        """Set a kind right by a list of a namespace, or of all for None. Returns the runs whose objects have changed.

        `now` is in seconds of any steady clock; `overdue` is asked with the same.
        """
        shelf, changed, listed = self._shelves[resource], set[Key | None](), set[str]()
        for item in items:
            uid = item["metadata"]["uid"]
            listed.add(uid)
            known = shelf.objects.get(uid)
            if uid not in shelf.deleted and (known is None or _version(known) < _version(item)):
                shelf.owed.setdefault(uid, (_version(item), now))
                changed.add(self.put(resource, item, watched=False))
        for uid, known in list(shelf.objects.items()):
            within = namespace is None or known["metadata"]["namespace"] == namespace
            if within and uid not in listed and _version(known) <= _number(version):
                changed.add(self.remove(resource, known))
        shelf.deleted.clear()
        return {key for key in changed if key is not None}

    def overdue(self, before: float) -> list[str]:
        """Return kinds whose watch still owes what a list has shown before that time."""
        return [
            resource
            for resource, shelf in self._shelves.items()
            if any(time < before for _, time in shelf.owed.values())
        ]

    def _filed(self, resource: str, manifest: Manifest) -> Key | None:
        key, uid = key_of(resource, manifest), manifest["metadata"]["uid"]
        if key is None:
            return None
        if resource == RUNS:
            self._runs[key] = uid
        else:
            self._children[resource].setdefault(key, set()).add(uid)
        return key

    def _unfiled(self, resource: str, manifest: Manifest) -> Key | None:
        key, uid = key_of(resource, manifest), manifest["metadata"]["uid"]
        if key is None:
            return None
        if resource == RUNS:
            if self._runs.get(key) == uid:
                del self._runs[key]
            return key
        siblings = self._children[resource].get(key, set())
        siblings.discard(uid)
        if not siblings:
            self._children[resource].pop(key, None)
        return key


def key_of(resource: str, manifest: Manifest) -> Key | None:
    """Return the run that an object is or belongs to."""
    metadata = manifest["metadata"]
    name = metadata["name"] if resource == RUNS else label(manifest, RUN_LABEL)
    return (metadata["namespace"], name) if name else None


def slim(resource: str, manifest: Manifest) -> Manifest:
    """Return the object with nothing but what is read, which is a fraction of it."""
    metadata: dict[str, Any] = {
        name: manifest["metadata"][name] for name in KEPT_METADATA if name in manifest["metadata"]
    }
    annotations = manifest["metadata"].get("annotations") or {}
    metadata["annotations"] = {name: text for name, text in annotations.items() if name.startswith(KEPT_ANNOTATIONS)}
    spec = manifest.get("spec") or {}
    kept = spec if resource == RUNS else {name: spec[name] for name in KEPT_SPEC[resource] if name in spec}
    return {"metadata": metadata, "spec": kept, "status": manifest.get("status") or {}}


def _version(manifest: Manifest) -> int:
    return _number(manifest["metadata"].get("resourceVersion", ""))


def _number(version: str) -> int:
    # Opaque in theory, a rising number in every API server there is; 0 lets the newest word win.
    return int(version) if version.isdigit() else 0
