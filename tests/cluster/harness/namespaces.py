"""Namespaces of tests: restricted Pod Security enforced, a bucket and its Secret, and torch where a test wants it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.harness.api import (
    CLAIMS,
    CONFIG_MAPS,
    CRDS,
    JOBS,
    NAMESPACES,
    PODS,
    QUOTAS,
    RUNS,
    SECRETS,
    SERVICE_ACCOUNTS,
    VOLUMES,
    Api,
    Object,
    Unreachable,
)
from tests.cluster.harness.controller import CRD
from tests.cluster.harness.images import Images
from tests.cluster.harness.manifests import LIBRARIES, TASK_FILES, TASKS, with_libraries
from tests.cluster.harness.runs import Run
from tests.cluster.harness.store import SECRET, Store
from tests.cluster.harness.tool import Kubectl
from tests.cluster.harness.waiting import until
from tests.servers import CREDENTIALS

TEST_LABEL = "gradientmail.io/test"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@dataclass(frozen=True)
class Namespace:
    """A namespace of one test, and what the test does in it."""

    name: str
    api: Api
    kubectl: Kubectl
    store: Store
    images: Images

    def apply(self, manifest: Mapping[str, Any]) -> Run:
        """Create a run, with the images and the bucket of the tests where the manifest names none."""
        body = self.completed(manifest)
        self.api.create(RUNS, self.name, body, fieldValidation="Strict")
        return self.run(body["metadata"]["name"])

    def run(self, name: str) -> Run:
        """Return the run of a name."""
        return Run(self.api, self.store, self.name, name)

    def completed(self, manifest: Mapping[str, Any]) -> Object:
        """Return the manifest with the tests' image and bucket where it names none."""
        spec = manifest["spec"]
        trainer = {"image": self.images.trainer, "imagePullPolicy": self.images.policy, **spec.get("trainer", {})}
        mailbox = {**self.store.mailbox(self.name), **spec.get("mailbox", {})}
        metadata = {**manifest["metadata"], "namespace": self.name}
        return {**manifest, "metadata": metadata, "spec": {**spec, "mailbox": mailbox, "trainer": trainer}}

    def training(self, pool: Mapping[str, Any]) -> Object:
        """Return the pool of real trainers with torch in reach."""
        if self.images.holds_torch:
            return dict(pool)
        self.provide_libraries()
        return with_libraries(pool)

    def provide_libraries(self) -> None:
        """Make torch and the tests' tasks mountable, once."""
        if not self.api.find(CLAIMS, self.name, LIBRARIES):
            provide_libraries(self.api, self.name, self.images.libraries)

    def children_are_gone(self) -> bool:
        """Whether nothing that carries the label of a run is left."""
        return not any(self.api.list(kind, self.name, "gradientmail.io/run") for kind in (JOBS, PODS, CONFIG_MAPS))


def provide_libraries(api: Api, namespace: str, folder: Path) -> None:
    """Make a folder with torch, and the tests' tasks, mountable in a namespace."""
    tasks = {file.name: file.read_text() for file in TASK_FILES}
    api.create(CONFIG_MAPS, namespace, {"metadata": {"name": TASKS}, "data": tasks})
    volume, claim = library_volume(namespace, folder)
    api.create(VOLUMES, None, volume)
    api.create(CLAIMS, namespace, claim)


def library_volume(namespace: str, folder: Path) -> tuple[Object, Object]:
    """Return a volume that shows a folder of this machine, and the one claim it is for; both read-only."""
    capacity = {"storage": "1Gi"}
    shared = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    name = f"{namespace}-{LIBRARIES}"
    volume = {
        "metadata": {"name": name, "labels": {TEST_LABEL: namespace}},
        "spec": {
            **shared,
            "capacity": capacity,
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": {"namespace": namespace, "name": LIBRARIES},
        },
    }
    claim = {
        "metadata": {"name": LIBRARIES},
        "spec": {**shared, "volumeName": name, "resources": {"requests": capacity}},
    }
    return volume, claim


@dataclass
class Namespaces:
    """Makes namespaces, and deletes them all. One for each test, or for a module whose runs start together."""

    api: Api
    kubectl: Kubectl
    store: Store
    images: Images
    made: list[str] = field(default_factory=list)

    def create(self, title: str) -> Namespace:
        """Create a namespace whose name begins with a title."""
        name = f"{short_name(title)}-{uuid.uuid4().hex[:5]}"
        create_namespace(self.api, name)
        self.made.append(name)
        secret = {"metadata": {"name": SECRET}, "stringData": dict(CREDENTIALS)}
        self.api.create(SECRETS, name, secret)
        self.store.create_bucket(name)
        return Namespace(name, self.api, self.kubectl, self.store, self.images)

    def delete(self) -> None:
        """Delete those that were made, without waiting for the end of it."""
        for name in self.made:
            delete_namespace(self.api, name)
            self.api.delete(VOLUMES, None, f"{name}-{LIBRARIES}")


def short_name(title: str) -> str:
    """Return a title as the beginning of a namespace's name."""
    words = "".join(letter if letter.isalnum() else "-" for letter in title.lower())
    return f"t-{words.removeprefix('test-')[:40].strip('-')}"


def create_namespace(api: Api, name: str) -> None:
    """Create a namespace that enforces restricted Pod Security, and wait until pods can be made in it."""
    labels = {**RESTRICTED, TEST_LABEL: "true"}
    api.create(NAMESPACES, None, {"metadata": {"name": name, "labels": labels}})
    until(lambda: api.find(SERVICE_ACCOUNTS, name, "default"), f"the service account of {name}", 30)


def delete_namespace(api: Api, name: str) -> None:
    """Delete the runs of a namespace, then the namespace; do not wait for the end of it."""
    for run in api.list(RUNS, name) if api.find(CRDS, None, CRD) else []:
        api.delete(RUNS, name, run["metadata"]["name"])
    api.delete(NAMESPACES, None, name)


def delete_everything(api: Api, seconds: float) -> None:
    """Delete what tests have left in a cluster that stays, and wait for the end of it."""
    with suppress(Unreachable):
        for namespace in api.list(NAMESPACES, labels=TEST_LABEL):
            delete_namespace(api, namespace["metadata"]["name"])
        for volume in api.list(VOLUMES, labels=TEST_LABEL):
            api.delete(VOLUMES, None, volume["metadata"]["name"])
    until(lambda: not api.list(NAMESPACES, labels=TEST_LABEL), "the tests' namespaces to go", seconds)


def give_quota(hard: Mapping[str, str], api: Api, namespace: str, *, used: Mapping[str, str] | None = None) -> None:
    """Set the quota `small`, and wait until it is in force: before, refusals say that its status is unknown.

    With `used`, wait until so much is counted.
    """
    api.create(QUOTAS, namespace, {"metadata": {"name": "small"}, "spec": {"hard": dict(hard)}})

    def in_force() -> bool:
        counted = api.get(QUOTAS, namespace, "small")["status"]["used"]
        return counted.keys() == hard.keys() and used in (None, counted)

    until(in_force, "the quota to be in force", 30)
