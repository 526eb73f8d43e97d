from __future__ import annotations

import json

import pytest

from tests.unit.chart.rendering import CHART, Helm

pytestmark = pytest.mark.timeout(60, func_only=True)

FILES = {"fleet": "gradientmail-fleet.json", "run": "gradientmail-run.json"}


def test_none_unless_asked_for(helm: Helm) -> None:
    assert helm.render().of_kind("ConfigMap") == []


def test_each_file_is_a_config_map_that_grafanas_sidecar_finds(helm: Helm) -> None:
    rendered = helm.render("dashboards.enabled=true").of_kind("ConfigMap")
    assert [each["metadata"]["name"] for each in rendered] == [f"trial-gradientmail-{name}-dashboard" for name in FILES]
    for each, file in zip(rendered, FILES.values(), strict=True):
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["namespace"] == "system"
        assert "annotations" not in each["metadata"]
        shipped = (CHART / "files" / "dashboards" / file).read_text(encoding="utf-8")
        assert json.loads(each["data"][file]) == json.loads(shipped)
        assert list(each["data"]) == [file]


def test_labels_annotations_and_namespace_can_be_chosen(helm: Helm) -> None:
    rendered = helm.render(
        'dashboards={"enabled":true,"namespace":"monitoring","labels":{"grafana_dashboard":null,"shown":"yes"},'
        '"annotations":{"grafana_folder":"Training"}}'
    ).of_kind("ConfigMap")
    assert len(rendered) == 2
    for each in rendered:
        assert each["metadata"]["namespace"] == "monitoring"
        assert each["metadata"]["labels"]["shown"] == "yes"
        assert "grafana_dashboard" not in each["metadata"]["labels"]
        assert each["metadata"]["annotations"] == {"grafana_folder": "Training"}
