"""The API server by plain requests: objects are JSON, errors carry the server's own words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.client import rest
from urllib3.exceptions import HTTPError

REQUEST_SECONDS = 30.0
HISTORY_SECONDS = 60
"""How long the server may take to tell what has happened already."""

Object = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of object, by its group and version and its plural name."""

    version: str
    plural: str

    def path(self, namespace: str | None = None, name: str | None = None, part: str | None = None) -> str:
        """Return the path of an object, of one of its parts, or of a list."""
        root = "apis" if "/" in self.version else "api"
        scope = ["namespaces", namespace] if namespace else []
        return "/".join(["", root, self.version, *scope, self.plural, *filter(None, (name, part))])


RUNS = Kind("gradientmail.io/v1alpha1", "gradientruns")
JOBS = Kind("batch/v1", "jobs")
PODS = Kind("v1", "pods")
CONFIG_MAPS = Kind("v1", "configmaps")
SECRETS = Kind("v1", "secrets")
EVENTS = Kind("v1", "events")
NAMESPACES = Kind("v1", "namespaces")
NODES = Kind("v1", "nodes")
QUOTAS = Kind("v1", "resourcequotas")
SERVICES = Kind("v1", "services")
SERVICE_ACCOUNTS = Kind("v1", "serviceaccounts")
VOLUMES = Kind("v1", "persistentvolumes")
CLAIMS = Kind("v1", "persistentvolumeclaims")
DEPLOYMENTS = Kind("apps/v1", "deployments")
CRDS = Kind("apiextensions.k8s.io/v1", "customresourcedefinitions")
POLICIES = Kind("admissionregistration.k8s.io/v1", "validatingadmissionpolicies")
POLICY_BINDINGS = Kind("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings")
CLUSTER_ROLES = Kind("rbac.authorization.k8s.io/v1", "clusterroles")
CLUSTER_ROLE_BINDINGS = Kind("rbac.authorization.k8s.io/v1", "clusterrolebindings")
ROLES = Kind("rbac.authorization.k8s.io/v1", "roles")

JSON = "application/json"
MERGE = "application/merge-patch+json"


class ApiError(Exception):
    """The API server refused; `status` is HTTP's."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class Unreachable(Exception):
    """The API server did not answer, or not yet as one that has started."""


class Api:
    """The API server of a kubeconfig. May be used by several threads."""

    def __init__(self, kubeconfig: Path) -> None:
        settings = client.Configuration()
        config.load_kube_config(str(kubeconfig), client_configuration=settings)  # type: ignore[no-untyped-call]
        settings.retries = False
        self._client = client.ApiClient(settings)

    def close(self) -> None:
        """Close the connections."""
        self._client.rest_client.pool_manager.clear()

    def text(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> str:
        """Send a request and return the answer's text. Raises ApiError and Unreachable."""
        try:
            response = self._send(method, path, body, content, query)
            text = str(response.read().decode())  # type: ignore[no-untyped-call]
        except (HTTPError, OSError) as error:
            raise Unreachable(f"{method} {path}: {error}") from error
        if response.status >= 400:
            raise _error(response.status, text)
        return text

    def _send(
        self,
        method: str,
        path: str,
        body: object,
        content: str,
        query: Mapping[str, str] | None,
        seconds: float = REQUEST_SECONDS,
    ) -> rest.RESTResponse:
        called, url, headers, sent, _ = self._client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json, */*", "Content-Type": content},
            body=body,
            auth_settings=["BearerToken"],
        )
        return self._client.call_api(called, url, headers, sent, _request_timeout=seconds)

    def request(self, method: str, path: str, body: object = None, **more: Any) -> Object:
        """Send a request and return the answer's object."""
        answer: Object = json.loads(self.text(method, path, body, **more))
        return answer

    def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """Return an object."""
        return self.request("GET", kind.path(namespace, name))

    def find(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """Return an object, or None if there is none."""
        try:
            return self.get(kind, namespace, name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: Kind, namespace: str | None = None, labels: str = "") -> list[Object]:
        """Return all objects of a kind, in one namespace or in all."""
        query = {"labelSelector": labels} if labels else {}
        items: list[Object] = self.request("GET", kind.path(namespace), query=query)["items"]
        return items

    def create(self, kind: Kind, namespace: str | None, body: Mapping[str, Any], **query: str) -> Object:
        """Create an object."""
        return self.request("POST", kind.path(namespace), dict(body), query=query)

    def replace(self, kind: Kind, namespace: str | None, body: Mapping[str, Any], **query: str) -> Object:
        """Replace an object."""
        return self.request("PUT", kind.path(namespace, body["metadata"]["name"]), dict(body), query=query)

    def patch(
        self, kind: Kind, namespace: str | None, name: str, body: Mapping[str, Any], part: str | None = None
    ) -> Object:
        """Merge fields into an object, or into a part of it such as its status."""
        return self.request("PATCH", kind.path(namespace, name, part), dict(body), content=MERGE)

    def delete(self, kind: Kind, namespace: str | None, name: str, *, grace_seconds: int | None = None) -> None:
        """Delete an object; its children go after it, in the background. One that is not there is no matter."""
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            self.text("DELETE", kind.path(namespace, name), body)
        except ApiError as error:
            if error.status != 404:
                raise

    def follow(self, kind: Kind, namespace: str, since: str, seconds: int) -> Iterator[tuple[str, Object]]:
        """Yield what happens to objects of a kind from a version of the cluster on: the event and the object."""
        query = {"watch": "true", "resourceVersion": since, "timeoutSeconds": str(seconds)}
        response = self._send("GET", kind.path(namespace), None, JSON, query, seconds + REQUEST_SECONDS)
        for line in response.response:
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise _error(event["object"]["code"], line.decode())
            yield event["type"], event["object"]

    def history(self, kind: Kind, namespace: str, since: str) -> Iterator[tuple[str, Object]]:
        """Yield what has happened to objects of a kind since a version."""
        newest = max((_version(found) for found in self.list(kind, namespace)), default=0)
        if newest <= int(since):
            return
        for event, found in self.follow(kind, namespace, since, HISTORY_SECONDS):
            yield event, found
            since = found["metadata"]["resourceVersion"]
            if int(since) >= newest:
                break
        assert int(since) >= newest, f"the history of {kind.plural} ends before version {newest}"
        yield from self.follow(kind, namespace, since, 1)  # those that are gone by now

    def version(self) -> str:
        """Return the version of the whole cluster's state at this moment."""
        version: str = self.request("GET", NAMESPACES.path(), query={"limit": "1"})["metadata"]["resourceVersion"]
        return version


def _version(found: Object) -> int:
    return int(found["metadata"]["resourceVersion"])


def _error(status: int, text: str) -> Exception:
    try:
        words = str(json.loads(text).get("message") or text)
    except (ValueError, AttributeError):
        words = text
    if status in (429, 500, 502, 503, 504):
        return Unreachable(words)
    return ApiError(status, words)
