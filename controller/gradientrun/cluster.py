"""The one module that talks to the API server, through the client of `kubernetes.aio`.

Assumes: HTTPS with the credentials of the pod's service account, or of the kubeconfig outside a
cluster; tokens are read anew every minute, so a rotated one is picked up. Objects are plain JSON:
the generated models are left aside, for they would drop the fields they do not know.
Does not assume that a request whose answer was lost has not been carried out: every call may be
repeated. Each has a time-out of REQUEST_SECONDS; none retries by itself.
Fails with one of the errors below; `Unavailable` alone means "try again".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from kubernetes.aio import client, config
from kubernetes.aio.config.config_exception import ConfigException

from gradientmail.run import API_VERSION, GROUP, KIND, PLURAL, VERSION
from gradientrun.names import CONTROLLER, RUN_LABEL
from gradientrun.runs import Manifest, Run

REQUEST_SECONDS = 15.0
PAGE = 100
"""Objects in one answer to a list: few, for as Python's objects they take ten times their size in JSON."""

RUNS = f"{GROUP}/{VERSION}/{PLURAL}"
JOBS = "batch/v1/jobs"
PODS = "v1/pods"
CONFIG_MAPS = "v1/configmaps"
EVENTS = "v1/events"
BY_KIND = {"Job": JOBS, "ConfigMap": CONFIG_MAPS, "Event": EVENTS, KIND: RUNS}
WATCHED = (RUNS, JOBS, PODS)

ENDING = "NamespaceTerminating"
"""Cause that the API server gives when a namespace is being deleted."""
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


class ClusterError(Exception):
    """The API server did not do what was asked."""


class Unavailable(ClusterError):
    """No answer, or none for now: try again, after `seconds` if it said so."""

    def __init__(self, words: str, seconds: float | None = None) -> None:
        super().__init__(words)
        self.seconds = seconds


class Refused(ClusterError):
    """The API server refuses, by permission, quota, admission or validation; its words say why."""


class Ending(Refused):
    """The namespace is being deleted, so nothing can be created in it."""


class Conflicting(ClusterError):
    """The object has changed since it was read, or is another one of the same name."""


class Missing(ClusterError):
    """There is no such object."""


class NotConnected(ClusterError):
    """There is neither a service account nor a kubeconfig that can be read."""


@dataclass(frozen=True, slots=True)
class Listed:
    """All objects of a kind, and the version at which they were all there."""

    items: list[Manifest]
    version: str


@dataclass(frozen=True, slots=True)
class Permission:
    """A right that the controller needs."""

    verb: str
    resource: str
    """As in `batch/v1/jobs`."""
    subresource: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        """Return it as an access review asks for it."""
        *group, _, name = self.resource.split("/")
        return {
            "verb": self.verb,
            "group": group[0] if group else "",
            "resource": name,
            "subresource": self.subresource,
        }

    def __str__(self) -> str:
        *group, _, name = self.resource.split("/")
        return f"{self.verb} {'.'.join([name, *group])}" + (f"/{self.subresource}" if self.subresource else "")


NEEDED = (
    *(Permission(verb, resource) for resource in WATCHED for verb in ("list", "watch")),
    *(Permission(verb, RUNS) for verb in ("get", "delete")),
    Permission("patch", RUNS, "status"),
    *(Permission(verb, JOBS) for verb in ("get", "create", "patch", "delete")),
    *(Permission(verb, CONFIG_MAPS) for verb in ("get", "create")),
    *(Permission(verb, EVENTS) for verb in ("create", "patch", "list")),
)


async def connection() -> client.Configuration:
    """Return the connection of the pod's service account, or of the kubeconfig. Raises NotConnected."""
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except ConfigException:
        try:
            await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except (ConfigException, OSError) as error:
            raise NotConnected(
                "no connection to a cluster: there is no service account here, and no kubeconfig can be read "
                f"({error}); set KUBECONFIG to the path of one"
            ) from error
    return configuration


class Cluster:
    """The API server, as the controller uses it. For one event loop; `count` is told of every answer.

    `reachable` says whether the latest request was answered at all.
    """

    def __init__(
        self, configuration: client.Configuration, count: Callable[[str, str, str], None] = lambda *_: None
    ) -> None:
        # As kopf does it: no proxy and no ~/.netrc, which would be looked for at every request, in a thread.
        configuration.client_session_kwargs = {"trust_env": False}
        self._client = client.ApiClient(configuration)
        self._client.user_agent = CONTROLLER
        self._count = count
        self.reachable = True

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def list_objects(
        self,
        resource: str,
        namespace: str | None,
        *,
        selector: str = "",
        fields: str = "",
        shape: Callable[[Manifest], Manifest] = lambda item: item,
    ) -> Listed:
        """Return all objects of a kind in a namespace, or in all of them for None. Asks page by page."""
        items: list[Manifest] = []
        query = {"limit": str(PAGE), "labelSelector": selector, "fieldSelector": fields, "continue": ""}
        while True:
            page = await self._request("GET", _path(resource, namespace), query=query)
            items += map(shape, page.get("items") or [])
            query["continue"] = page["metadata"].get("continue") or ""
            if not query["continue"]:
                return Listed(items, page["metadata"].get("resourceVersion", ""))

    async def list_watched(self, resource: str, namespace: str | None, shape: Callable[[Manifest], Manifest]) -> Listed:
        """Return all runs, or all Jobs or pods that belong to one, each in the shape that the caller needs."""
        selector = "" if resource == RUNS else RUN_LABEL
        return await self.list_objects(resource, namespace, selector=selector, shape=shape)

    async def create(self, manifest: Manifest) -> Manifest:
        """Create a child of a run, and return it as it is. One of the same owner that is there already will do.

        Raises Refused if another owner has an object of that name, Conflicting if it has just gone.
        """
        resource, metadata = BY_KIND[manifest["kind"]], manifest["metadata"]
        try:
            return await self._request("POST", _path(resource, metadata["namespace"]), manifest, query=_MANAGER)
        except Conflicting:
            try:
                present = await self._request("GET", _path(resource, metadata["namespace"], metadata["name"]))
            except Missing as gone:
                raise Conflicting(str(gone)) from gone
        if _owner(present) != _owner(manifest):
            raise Refused(
                f"the {manifest['kind']} {metadata['name']!r} exists and does not belong to this run: "
                "delete it if nothing needs it, or give the run another name"
            )
        return present

    async def patch_job(self, run: Run, name: str, uid: str, spec: Manifest) -> Manifest:
        """Change fields of a Job's spec, and return it as it is. Raises Conflicting if another has its name now."""
        body = {"metadata": {"uid": uid}, "spec": spec}
        return await self._request("PATCH", _path(JOBS, run.namespace, name), body, content=MERGE, query=_MANAGER)

    async def delete(self, resource: str, namespace: str, name: str, uid: str) -> bool:
        """Delete an object and, in the background, what it owns. Returns False if it is gone, or another by now."""
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            await self._request("DELETE", _path(resource, namespace, name), options)
        except (Missing, Conflicting):
            return False
        return True

    async def write_status(self, run: Run, status: Mapping[str, Any]) -> Manifest:
        """Write a run's whole status by server-side apply, and return the run as it is.

        Raises Conflicting if the run has changed since it was read: a status is never written from old facts.
        """
        identity = {
            "name": run.name,
            "namespace": run.namespace,
            "uid": run.uid,
            "resourceVersion": run.resource_version,
        }
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": identity, "status": status}
        path = f"{_path(RUNS, run.namespace, run.name)}/status"
        return await self._request("PATCH", path, body, content=APPLY, query=_MANAGER | {"force": "true"})

    async def warnings(self, namespace: str, uid: str) -> list[Manifest]:
        """Return the warning events about an object."""
        fields = f"involvedObject.uid={uid},type=Warning"
        return (await self.list_objects(EVENTS, namespace, fields=fields)).items

    async def is_ending(self, namespace: str) -> bool:
        """Whether a namespace is being deleted, found out without the right to read it, by creating nothing in it."""
        probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "probe-"}}
        try:
            await self._request("POST", _path(CONFIG_MAPS, namespace), probe, query=_MANAGER | {"dryRun": "All"})
        except Ending:
            return True
        except (Refused, Missing):
            return False
        return False

    async def create_event(self, event: Manifest) -> None:
        """Post an event."""
        await self._request("POST", _path(EVENTS, event["metadata"]["namespace"]), event, query=_MANAGER)

    async def repeat_event(self, namespace: str, name: str, count: int, time: str) -> None:
        """Say that an event has happened again."""
        body = {"count": count, "lastTimestamp": time}
        await self._request("PATCH", _path(EVENTS, namespace, name), body, content=MERGE, query=_MANAGER)

    async def serves_runs(self) -> bool:
        """Whether the CustomResourceDefinition of this version is installed."""
        try:
            await self._request("GET", f"/apis/{GROUP}/{VERSION}")
        except Missing:
            return False
        return True

    async def allows(self, permission: Permission, namespace: str | None) -> bool:
        """Whether the controller has a right in a namespace, or in all of them for None."""
        attributes = permission.attributes | ({"namespace": namespace} if namespace else {})
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        body = review | {"spec": {"resourceAttributes": attributes}}
        answer = await self._request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
        return bool(answer["status"].get("allowed"))

    async def _request(
        self,
        verb: str,
        path: str,
        body: Manifest | None = None,
        *,
        content: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Manifest:
        parameters = [(name, value) for name, value in (query or {}).items() if value]
        headers = {"Accept": "application/json", "Content-Type": content}
        try:
            # The body is JSON as it is; the client would walk through all of it, looking for models.
            method, url, headers, _, _ = await self._client.param_serialize(
                verb, path, query_params=parameters, header_params=headers, auth_settings=["BearerToken"]
            )
            timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
            response = await self._client.call_api(method, url, headers, body, _request_timeout=timeout)
            data = await response.read()  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, TimeoutError, OSError, ConfigException) as error:
            self.reachable = False
            self._count(verb, _kind(path), "unreachable")
            raise Unavailable(f"the API server does not answer: {error or type(error).__name__}") from error
        self.reachable = True
        self._count(verb, _kind(path), str(response.status))
        return _answer(response.status, response.headers, data)


_MANAGER = {"fieldManager": CONTROLLER}


def _answer(status: int, headers: Mapping[str, str], data: bytes) -> Manifest:
    answer = _parsed(data)
    if status < 300:
        return answer
    words = str(answer.get("message") or f"HTTP {status}")
    if status == 404:
        raise Missing(words)
    if status == 409:
        raise Conflicting(words)
    if status in (401, 408, 429) or status >= 500:
        raise Unavailable(words, _seconds(headers.get("Retry-After")))
    raise Ending(words) if ENDING in _causes(answer) else Refused(words)


def _causes(answer: Manifest) -> list[str]:
    return [cause.get("reason", "") for cause in (answer.get("details") or {}).get("causes") or []]


def _parsed(data: bytes) -> Manifest:
    try:
        answer = json.loads(data)
    except ValueError:
        return {"message": data[:200].decode(errors="replace")}
    return answer if isinstance(answer, dict) else {}


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isdigit() else None


def _path(resource: str, namespace: str | None, name: str | None = None) -> str:
    *group, plural = resource.split("/")
    parts = ["/api" if len(group) == 1 else "/apis", *group]
    parts += ["namespaces", namespace] if namespace else []
    return "/".join([*parts, plural, *([name] if name else [])])


def _kind(path: str) -> str:
    """Return the plural name in a path, for counting."""
    parts = path.split("/")
    after = parts.index("namespaces") + 2 if "namespaces" in parts else 4 if parts[1] == "apis" else 3
    return parts[after] if after < len(parts) else "discovery"


def _owner(manifest: Manifest) -> str | None:
    owners = manifest["metadata"].get("ownerReferences") or []
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)
