"""Brings moto's S3 server up in the cluster, and finds a way to it from here."""

from __future__ import annotations

import select
import socket
import subprocess
from contextlib import ExitStack

from tests.cluster.harness.api import CLAIMS, CONFIG_MAPS, PODS, SERVICES, VOLUMES, Object
from tests.cluster.harness.manifests import LIBRARIES, NODES_FOLDER
from tests.cluster.harness.namespaces import create_namespace, library_volume
from tests.cluster.harness.site import Site
from tests.cluster.harness.store import PORT, Store, open_store
from tests.cluster.harness.tool import ROOT
from tests.cluster.harness.waiting import until
from tests.servers import CREDENTIALS

STORE_NAMESPACE = "gradientmail-store"
NAME = "store"
SERVER_ITEMS = [
    {"key": "servers.py", "path": "tests/servers.py"},
    {"key": "store_server.py", "path": "store_server.py"},
]


def serve_store(site: Site, stack: ExitStack) -> Store:
    """Start the server on the first host and return its buckets; the stack ends what runs on this machine for it."""
    create_namespace(site.api, STORE_NAMESPACE)
    server = {
        "servers.py": (ROOT / "tests" / "servers.py").read_text(),
        "store_server.py": (NODES_FOLDER / "store_server.py").read_text(),
    }
    site.api.create(CONFIG_MAPS, STORE_NAMESPACE, {"metadata": {"name": NAME}, "data": server})
    if not site.images.holds_torch:
        volume, claim = library_volume(STORE_NAMESPACE, site.images.libraries)
        site.api.create(VOLUMES, None, volume)
        site.api.create(CLAIMS, STORE_NAMESPACE, claim)
    site.api.create(PODS, STORE_NAMESPACE, _pod(site))
    service = {"metadata": {"name": NAME}, "spec": {"selector": {"app": NAME}, "ports": [{"port": PORT}]}}
    address = site.api.create(SERVICES, STORE_NAMESPACE, service)["spec"]["clusterIP"]
    until(lambda: _ready(site), "the S3 server", 90, lambda: site.api.get(PODS, STORE_NAMESPACE, NAME)["status"])
    return stack.enter_context(open_store(f"http://{address}:{PORT}", _way_to(address, site, stack)))


def _pod(site: Site) -> Object:
    libraries = [] if site.images.holds_torch else [LIBRARIES]
    mounts = [{"name": name, "mountPath": f"/{name}", "readOnly": True} for name in ["server", *libraries]]
    volumes: list[Object] = [{"name": "server", "configMap": {"name": NAME, "items": SERVER_ITEMS}}]
    volumes += [{"name": name, "persistentVolumeClaim": {"claimName": name, "readOnly": True}} for name in libraries]
    environment = {**CREDENTIALS, "PYTHONPATH": "/server:/libraries"}
    return {
        "metadata": {"name": NAME, "labels": {"app": NAME}},
        "spec": {
            "nodeName": site.hosts()[0],
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "s3",
                    "image": site.images.trainer,
                    "imagePullPolicy": site.images.policy,
                    "command": ["python3", "/server/store_server.py"],
                    "env": [{"name": name, "value": value} for name, value in environment.items()],
                    "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": mounts,
                }
            ],
            "volumes": volumes,
        },
    }


def _ready(site: Site) -> bool:
    status = site.api.get(PODS, STORE_NAMESPACE, NAME).get("status") or {}
    return any(item["type"] == "Ready" and item["status"] == "True" for item in status.get("conditions") or [])


def _way_to(address: str, site: Site, stack: ExitStack) -> str:
    """Return a URL that leads to the server from here: its own where pods' addresses do, else a forwarded port."""
    if site.tool.provider == "bare":
        until(lambda: _listens(address), "the Service of the S3 server", 30)
        return f"http://{address}:{PORT}"
    words = ["kubectl", "--namespace", STORE_NAMESPACE, "port-forward", f"pod/{NAME}", f":{PORT}"]
    forward = stack.enter_context(
        subprocess.Popen(words, env=dict(site.kubectl.environment), stdout=subprocess.PIPE, text=True)
    )
    stack.callback(forward.terminate)
    assert forward.stdout is not None
    assert select.select([forward.stdout], [], [], 30)[0], "kubectl port-forward said nothing for 30 s"
    return "http://" + forward.stdout.readline().split()[2]


def _listens(address: str) -> bool:
    try:
        socket.create_connection((address, PORT), timeout=2).close()
    except OSError:
        return False
    return True
