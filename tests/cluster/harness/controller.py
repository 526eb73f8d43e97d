"""The controller as installed by the chart: its release, its pod, its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.cluster.harness.api import CRDS, DEPLOYMENTS, PODS, Api, Object
from tests.cluster.harness.images import Images
from tests.cluster.harness.metrics import WRITES, samples
from tests.cluster.harness.tool import Helm, Kubectl
from tests.cluster.harness.waiting import until

NAMESPACE = "gradientmail-system"
RELEASE = "gradientmail"
CRD = "gradientruns.gradientmail.io"
SELECTOR = "app.kubernetes.io/name=gradientmail,app.kubernetes.io/component=controller"
READY_SECONDS = 90.0
HOST_LABEL = "kubernetes.io/hostname"


@dataclass(frozen=True)
class Controller:
    """The chart's release in a namespace of its own. `host` is the node it is kept on, which no test kills."""

    api: Api
    kubectl: Kubectl
    helm: Helm
    images: Images
    host: str

    def values(self) -> Object:
        """Return the values of every install and upgrade."""
        repository, _, tag = self.images.controller.rpartition(":")
        image = {"repository": repository, "tag": tag, "pullPolicy": self.images.policy}
        return {"image": image, "nodeSelector": {HOST_LABEL: self.host}}

    def install(self, values: Mapping[str, Any] | None = None) -> None:
        """Install or upgrade the release, and wait until the new pod is ready and the old one gone."""
        words = ("upgrade", "--install", RELEASE, "charts/gradientmail", "--namespace", NAMESPACE)
        self.helm(*words, values={**self.values(), **(values or {})})
        self.wait_ready()

    def uninstall(self, *, keep_runs: bool) -> None:
        """Uninstall the release; the CRD and with it all runs go as well, or stay."""
        if not keep_runs and self.api.find(CRDS, None, CRD):
            self.install({"crds": {"keep": False}})
        self.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")

    def pods(self) -> list[Object]:
        """Return the controller's pods, those that are leaving included."""
        return self.api.list(PODS, NAMESPACE, SELECTOR)

    def wait_ready(self, count: int = 1) -> list[Object]:
        """Wait until exactly so many pods exist, and all are ready and of the latest template."""

        def ready() -> list[Object] | None:
            observed, pods = self._observed(), self.pods()
            return pods if observed and len(pods) == count and all(map(_is_ready, pods)) else None

        return until(ready, f"{count} ready pods of the controller", READY_SECONDS, lambda: self.pods())

    def _observed(self) -> bool:
        deployment = self.api.get(DEPLOYMENTS, NAMESPACE, RELEASE)
        status, metadata = deployment.get("status") or {}, deployment["metadata"]
        latest = status.get("observedGeneration") == metadata["generation"]
        return bool(latest and status.get("updatedReplicas", 0) == deployment["spec"]["replicas"])

    def scale(self, replicas: int) -> None:
        """Set the number of controllers, and wait until it is so."""
        self.api.patch(DEPLOYMENTS, NAMESPACE, RELEASE, {"spec": {"replicas": replicas}})
        if replicas:
            self.wait_ready(replicas)
        else:
            until(lambda: not self.pods(), "the controller to be gone", 60)

    def kill(self) -> None:
        """Kill the controller's pod at once, without waiting for the next one."""
        for pod in self.pods():
            self.api.delete(PODS, NAMESPACE, pod["metadata"]["name"], grace_seconds=0)

    def restarts(self) -> int:
        """Return how often containers of the controller have been restarted."""
        return sum(status["restartCount"] for pod in self.pods() for status in pod["status"]["containerStatuses"])

    def page(self) -> str:
        """Return its page of metrics."""
        (pod,) = self.pods()
        return self.api.text("GET", PODS.path(NAMESPACE, f"{pod['metadata']['name']}:8080", "proxy/metrics"))

    def requests(self) -> Counter[str]:
        """Return how many requests it has made, by verb and resource."""
        counted: Counter[str] = Counter()
        for labels, count in samples(self.page(), "gradientrun_kubernetes_requests_total").items():
            named = dict(labels)
            counted[f"{named['verb']} {named['resource']}"] += count
        return counted

    def memory(self) -> int:
        """Return the resident memory of its process, in bytes."""
        (pod,) = self.pods()
        words = ("--namespace", NAMESPACE, "exec", pod["metadata"]["name"], "--", "cat", "/proc/1/status")
        lines = dict(line.split(":", 1) for line in self.kubectl(*words).splitlines())
        return int(lines["VmRSS"].split()[0]) << 10


def writes(requests: Mapping[str, int]) -> int:
    """Return how many of the requests change something."""
    return sum(count for name, count in requests.items() if name.split()[0] in WRITES)


def _is_ready(pod: Object) -> bool:
    conditions = {item["type"]: item["status"] for item in pod["status"].get("conditions") or []}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]
