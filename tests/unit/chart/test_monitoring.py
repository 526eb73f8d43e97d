"""How a Prometheus finds the pods, with the operator and without, and the alerts as a PrometheusRule."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradientrun.build import build_pod_template
from tests.promtool import Promtool
from tests.unit.chart.rendering import CHART, Helm
from tests.unit.controller.manifests import a_run

pytestmark = pytest.mark.timeout(60, func_only=True)

CONTROLLER = {
    "app.kubernetes.io/name": "gradientmail",
    "app.kubernetes.io/instance": "trial",
    "app.kubernetes.io/component": "controller",
}
ENDPOINT = {"port": "metrics", "honorLabels": True, "interval": "15s"}
RULES = "monitoring.rules.enabled=true"


def shipped_groups() -> Any:
    return yaml.safe_load((CHART / "files" / "rules.yaml").read_text())["groups"]


def rendered_groups(helm: Helm, *settings: str) -> Any:
    return helm.render(RULES, *settings).one("PrometheusRule", "trial-gradientmail")["spec"]["groups"]


def alert(groups: Any, name: str) -> Any:
    (found,) = [rule for group in groups for rule in group["rules"] if rule.get("alert") == name]
    return found


def test_nothing_of_the_operators_unless_asked_for(helm: Helm) -> None:
    kinds = helm.render().kinds()
    assert not {"PodMonitor", "ServiceMonitor", "PrometheusRule"} & set(kinds)


def test_pod_monitors_select_all_trainers_and_the_controller(helm: Helm) -> None:
    rendered = helm.render("monitoring.podMonitor.enabled=true")
    assert rendered.one("PodMonitor", "trial-gradientmail-trainers")["spec"] == {
        "namespaceSelector": {"any": True},
        "selector": {"matchExpressions": [{"key": "gradientmail.io/run", "operator": "Exists"}]},
        "podMetricsEndpoints": [ENDPOINT],
    }
    assert rendered.one("PodMonitor", "trial-gradientmail-controller")["spec"] == {
        "selector": {"matchLabels": CONTROLLER},
        "podMetricsEndpoints": [ENDPOINT],
    }


def test_pod_monitors_keep_to_the_served_namespaces(helm: Helm) -> None:
    rendered = helm.render("monitoring.podMonitor.enabled=true", 'watchNamespaces=["team-a","team-b"]')
    spec = rendered.one("PodMonitor", "trial-gradientmail-trainers")["spec"]
    assert spec["namespaceSelector"] == {"matchNames": ["team-a", "team-b"]}


def test_monitors_select_what_is_there(helm: Helm) -> None:
    rendered = helm.render('podLabels={"team":"ml"}')
    pod = rendered.one("Deployment", "trial-gradientmail")["spec"]["template"]
    service = rendered.one("Service", "trial-gradientmail-metrics")
    assert pod["metadata"]["labels"].items() >= CONTROLLER.items()
    assert service["metadata"]["labels"].items() >= CONTROLLER.items()
    assert "metrics" in [port["name"] for port in pod["spec"]["containers"][0]["ports"]]
    assert "metrics" in [port["name"] for port in service["spec"]["ports"]]
    run = a_run()
    trainer = build_pod_template(run, run.pools[0])
    assert trainer["metadata"]["labels"]["gradientmail.io/run"] == "first"
    assert "metrics" in [port["name"] for port in trainer["spec"]["containers"][0]["ports"]]


def test_a_service_monitor_takes_the_place_of_the_controllers_pod_monitor(helm: Helm) -> None:
    rendered = helm.render("monitoring.podMonitor.enabled=true", "monitoring.serviceMonitor.enabled=true")
    assert [each["metadata"]["name"] for each in rendered.of_kind("PodMonitor")] == ["trial-gradientmail-trainers"]
    monitor = rendered.one("ServiceMonitor", "trial-gradientmail-controller")
    assert monitor["spec"] == {"selector": {"matchLabels": CONTROLLER}, "endpoints": [ENDPOINT]}


def test_a_service_monitor_needs_the_service(helm: Helm) -> None:
    assert (
        "monitoring.serviceMonitor.enabled needs a Service to watch: leave metrics.service.enabled true, or use "
        "monitoring.podMonitor alone."
    ) in helm.refusal("monitoring.serviceMonitor.enabled=true", "metrics.service.enabled=false")


def test_interval_and_labels_can_be_chosen(helm: Helm) -> None:
    labels = '{"release":"prometheus"}'
    rendered = helm.render(
        'monitoring.interval="1m"',
        RULES,
        f"monitoring.rules.labels={labels}",
        "monitoring.podMonitor.enabled=true",
        f"monitoring.podMonitor.labels={labels}",
        "monitoring.serviceMonitor.enabled=true",
        f"monitoring.serviceMonitor.labels={labels}",
    )
    found = [each for kind in ("PodMonitor", "ServiceMonitor", "PrometheusRule") for each in rendered.of_kind(kind)]
    assert [each["metadata"]["labels"]["release"] for each in found] == ["prometheus"] * 3
    (trainers,) = rendered.one("PodMonitor", "trial-gradientmail-trainers")["spec"]["podMetricsEndpoints"]
    assert trainers["interval"] == "1m"


def test_rules_are_the_plain_file(helm: Helm) -> None:
    assert rendered_groups(helm) == shipped_groups()


def test_rendered_rules_are_taken_by_prometheus(helm: Helm, promtool: Promtool, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": rendered_groups(helm)}))
    assert promtool.complaints("check", "rules", rules) == ""


def test_alerts_can_be_changed_and_left_out(helm: Helm) -> None:
    groups = rendered_groups(
        helm,
        'monitoring.rules.runbookURL="https://runbooks.example/gradientmail"',
        'monitoring.rules.alerts={"GradientRunNodeStarved":{"for":"1h","severity":"info"},'
        '"GradientRunFailed":{"enabled":false}}',
    )
    expected = copy.deepcopy(shipped_groups())
    for group in expected:
        group["rules"] = [rule for rule in group["rules"] if rule.get("alert") != "GradientRunFailed"]
        for rule in group["rules"]:
            if "alert" in rule:
                url = f"https://runbooks.example/gradientmail#{rule['alert'].lower()}"
                rule["annotations"]["runbook_url"] = url
    changed = alert(expected, "GradientRunNodeStarved")
    changed["for"], changed["labels"]["severity"] = "1h", "info"
    assert groups == expected


def test_an_alert_that_is_none_is_refused(helm: Helm) -> None:
    words = helm.refusal(RULES, 'monitoring.rules.alerts={"NodeStarved":{"for":"1h"}}')
    assert (
        'monitoring.rules.alerts names "NodeStarved", which is no alert: there are GradientRunNotProgressing,' in words
    )


def test_durations_are_prometheus_own(helm: Helm) -> None:
    assert "at '/monitoring/interval': '15 s' does not match pattern" in helm.refusal('monitoring.interval="15 s"')


def test_annotations_lead_a_prometheus_without_the_operator_to_all_pods(helm: Helm) -> None:
    wanted = {"prometheus.io/scrape": "true", "prometheus.io/path": "/metrics"}
    controller = helm.render("metrics.port=9400").one("Deployment", "trial-gradientmail")["spec"]["template"]
    assert controller["metadata"]["annotations"] == wanted | {"prometheus.io/port": "9400"}
    run = a_run()
    trainer = build_pod_template(run, run.pools[0])
    assert trainer["metadata"]["annotations"].items() >= (wanted | {"prometheus.io/port": "9090"}).items()


def test_annotations_can_be_left_out(helm: Helm) -> None:
    def annotations(*settings: str) -> object:
        template = helm.render(*settings).one("Deployment", "trial-gradientmail")["spec"]["template"]
        return template["metadata"].get("annotations")

    assert annotations("metrics.scrapeAnnotations=false") is None
    assert annotations("metrics.scrapeAnnotations=false", 'podAnnotations={"a":"b"}') == {"a": "b"}
    kept = annotations('podAnnotations={"a":"b","prometheus.io/scrape":"false"}')
    assert isinstance(kept, dict)
    assert (kept["a"], kept["prometheus.io/scrape"]) == ("b", "false")
