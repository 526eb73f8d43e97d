"""The watches, by kopf: three event handlers that hand over what they see, and nothing else.

kopf's other handlers are not used, for they keep state in annotations and set finalizers; a
finalizer holds up the deletion of runs and namespaces while the controller is away.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kopf
from kubernetes.aio import client

from gradientmail.run import GROUP, PLURAL, VERSION
from gradientrun.cluster import JOBS, PAGE, PODS, RUNS, connection
from gradientrun.controller import Controller
from gradientrun.names import RUN_LABEL
from gradientrun.stateless import NothingHandled, NothingInProgress

SERVER_SECONDS = 300
"""The API server ends a watch after this long; it goes on from where it was."""


class Backoffs:
    """Pauses between repeated requests of a watch: without end, for only an answer ends an outage."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.5, 1, 2, 3, 5)
        while True:
            yield 8


def operator_settings() -> kopf.OperatorSettings:
    """Return kopf's settings for watches alone."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.server_timeout = SERVER_SECONDS
    settings.watching.client_timeout = SERVER_SECONDS + 30
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = 90
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = Backoffs()
    # Each object's worker holds the object until it has been idle for so long; together they are all of a first list.
    settings.queueing.idle_timeout = 0.05
    settings.watching.chunk_size = PAGE
    settings.persistence.diffbase_storage = NothingHandled()
    settings.persistence.progress_storage = NothingInProgress()
    for resource in (("batch", "v1", "jobs"), ("", "v1", "pods")):
        settings.watching.label_selectors[resource] = RUN_LABEL
    return settings


def registry(controller: Controller) -> kopf.OperatorRegistry:
    """Return the handlers that hand everything they see to the controller."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return connection_info(await connection())

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=handlers)
    async def run_seen(event: Any, **_: Any) -> None:
        controller.seen(RUNS, event["type"], event["object"])

    @kopf.on.event("batch", "v1", "jobs", labels={RUN_LABEL: kopf.PRESENT}, registry=handlers)
    async def job_seen(event: Any, **_: Any) -> None:
        controller.seen(JOBS, event["type"], event["object"])

    @kopf.on.event("", "v1", "pods", labels={RUN_LABEL: kopf.PRESENT}, registry=handlers)
    async def pod_seen(event: Any, **_: Any) -> None:
        controller.seen(PODS, event["type"], event["object"])

    return handlers


def connection_info(configuration: client.Configuration) -> kopf.ConnectionInfo:
    """Return the connection as kopf takes it."""
    scheme, _, token = (configuration.api_key.get("BearerToken") or "").partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme.capitalize() or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )
