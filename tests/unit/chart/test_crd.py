from __future__ import annotations

import pytest

from tests.unit.chart.rendering import Helm, Object

pytestmark = pytest.mark.timeout(60, func_only=True)

CRD = ("CustomResourceDefinition", "gradientruns.gradientmail.io")


def annotated(found: Object) -> object:
    return found["metadata"].get("annotations")


def test_crd_is_upgraded_with_the_chart_and_survives_it(helm: Helm) -> None:
    crd = helm.render().one(*CRD)
    assert annotated(crd) == {"helm.sh/resource-policy": "keep"}
    assert crd["spec"]["names"]["kind"] == "GradientRun"
    assert [version["name"] for version in crd["spec"]["versions"]] == ["v1alpha1"]


def test_crd_can_go_with_the_release(helm: Helm) -> None:
    assert annotated(helm.render("crds.keep=false").one(*CRD)) is None


def test_crd_can_be_left_to_others(helm: Helm) -> None:
    assert helm.render("crds.enabled=false").of_kind("CustomResourceDefinition") == []
