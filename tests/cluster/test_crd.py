"""The CRD as the API server enforces and shows it: every rule of the shared table, updates, explain, columns."""

from __future__ import annotations

import pytest

from tests.cluster.harness.api import QUOTAS, RUNS, ApiError, Object
from tests.cluster.harness.manifests import ending, run_manifest
from tests.cluster.harness.namespaces import Namespace, Namespaces
from tests.cluster.harness.waiting import until
from tests.manifest_rules import ALLOWED_UPDATES, BAD, CLUSTER_ONLY, GOOD, REFUSED_UPDATES, Case, Update

STRICT = {"fieldValidation": "Strict"}
DRY_RUN = {**STRICT, "dryRun": "All"}


@pytest.fixture(scope="module")
def table(shared_namespaces: Namespaces) -> Namespace:
    """A namespace for the whole table, in which the controller can make no Job: the runs are never to start."""
    made = shared_namespaces.create("crd-rules")
    quota = {"metadata": {"name": "no-jobs"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    made.api.create(QUOTAS, made.name, quota)
    return made


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.name)
def test_a_good_manifest_is_taken(table: Namespace, case: Case) -> None:
    taken = table.api.create(RUNS, table.name, case.manifest, **DRY_RUN)
    assert taken["spec"]["data"]["unitSteps"] >= 1, "defaults are filled in"


@pytest.mark.parametrize("case", [*BAD, *CLUSTER_ONLY], ids=lambda case: case.name)
def test_a_bad_manifest_is_refused_with_a_sentence(table: Namespace, case: Case) -> None:
    with pytest.raises(ApiError) as refused:
        table.api.create(RUNS, table.name, case.manifest, **DRY_RUN)
    assert case.server in str(refused.value)


@pytest.mark.parametrize("update", ALLOWED_UPDATES, ids=lambda update: update.name)
def test_an_allowed_update_is_taken(table: Namespace, update: Update) -> None:
    name = _create(table, update, f"allowed-{ALLOWED_UPDATES.index(update)}")
    assert _replaced(table, update, name)["metadata"]["name"] == name


@pytest.mark.parametrize("update", REFUSED_UPDATES, ids=lambda update: update.name)
def test_a_refused_update_says_why(table: Namespace, update: Update) -> None:
    name = _create(table, update, f"refused-{REFUSED_UPDATES.index(update)}")
    with pytest.raises(ApiError) as refused:
        _replaced(table, update, name)
    assert update.server in str(refused.value)


def _create(table: Namespace, update: Update, name: str) -> str:
    first = {**update.first, "metadata": {**update.first["metadata"], "name": name}}
    table.api.create(RUNS, table.name, first, **STRICT)
    return name


def _replaced(table: Namespace, update: Update, name: str) -> Object:
    return until(lambda: _try_to_replace(table, update, name), "an update that meets no other", 10)


def _try_to_replace(table: Namespace, update: Update, name: str) -> Object | None:
    """Replace the run, or return None because the controller has written its status meanwhile."""
    version = table.api.get(RUNS, table.name, name)["metadata"]["resourceVersion"]
    metadata = {**update.second["metadata"], "name": name, "resourceVersion": version}
    try:
        return table.api.replace(RUNS, table.name, {**update.second, "metadata": metadata}, **DRY_RUN)
    except ApiError as error:
        if error.status == 409:
            return None
        raise


EXPLAINED = {
    "gradientrun": "A training run: one task on unequal nodes that share a queue of work in an object store.",
    "gradientrun.spec.data": "lanes <integer> -required- Slices of each dataset step.",
    "gradientrun.spec.mailbox": "secretName <string> Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY;",
    "gradientrun.spec.nodes": "replicas <integer> Nodes in this pool.",
    "gradientrun.spec.trainer": "microBatch <integer> Sequences in one forward and backward pass.",
    "gradientrun.status": "mailboxPrefix <string> ",
}


@pytest.mark.parametrize("field", EXPLAINED)
def test_kubectl_explain_describes_every_field(table: Namespace, field: str) -> None:
    def explained() -> str:
        return " ".join(table.kubectl("explain", field).split())

    until(lambda: EXPLAINED[field] in explained(), f"words for {field}", 30, explained)
    assert "<no description>" not in explained()


def test_kubectl_get_shows_a_run_at_a_glance(namespace: Namespace) -> None:
    data = {"steps": 4, "batch": 1, "lanes": 1, "unitSteps": 1}
    run = namespace.apply(run_manifest("shown", [ending(units=4)], data=data))
    run.wait_phase("Succeeded", 60)
    header, row = namespace.kubectl("--namespace", namespace.name, "get", "grun").splitlines()
    assert header.split() == ["NAME", "PHASE", "NODES", "CLAIMED", "CONSUMED", "TOTAL", "PROGRESS", "AGE"]
    assert row.split()[:-1] == ["shown", "Succeeded", "0", "4", "4", "4", "100"]
    wide = namespace.kubectl("--namespace", namespace.name, "get", "gradientruns", "--output", "wide").splitlines()
    assert wide[0].split()[-1] == "PREFIX"
    assert wide[1].split()[-1] == run.prefix == f"s3://{namespace.name}/runs/{namespace.name}/shown/{run.uid}-1"
    categories = namespace.kubectl("--namespace", namespace.name, "get", "gradientmail", "--output", "name")
    assert categories.strip() == "gradientrun.gradientmail.io/shown"
