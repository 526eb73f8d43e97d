"""One real cluster for the session, the product installed in it as a user would, and a namespace for each test."""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.harness.collecting import collect
from tests.cluster.harness.controller import NAMESPACE as SYSTEM
from tests.cluster.harness.controller import Controller
from tests.cluster.harness.namespaces import Namespace, Namespaces
from tests.cluster.harness.serving import STORE_NAMESPACE, serve_store
from tests.cluster.harness.session import CannotRun, Say, install_controller, open_site
from tests.cluster.harness.site import Site
from tests.cluster.harness.store import Store
from tests.cluster.harness.tool import ROOT, CommandFailed, Tool

HERE = Path(__file__).parent
REPORTS = ROOT / "build" / "cluster-failures"
TEST_SECONDS = 900
"""Of a test's own body, each of whose waits ends sooner; fixtures have time-outs of their own."""
BREAKING = "breaks_machines"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{BREAKING}: kills nodes or the API server; not done to an existing cluster")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if HERE in item.path.parents]
    for item in mine:
        item.add_marker(pytest.mark.cluster)
        item.add_marker(pytest.mark.timeout(TEST_SECONDS, func_only=True))
    if mine and _is_existing():
        breaking = [item for item in mine if item.get_closest_marker(BREAKING)]
        config.hook.pytest_deselected(items=breaking)
        items[:] = [item for item in items if item not in breaking]


def _is_existing() -> bool:
    try:
        return Tool().provider == "existing"
    except CommandFailed:
        return False  # the fixture `cluster` says what is wrong


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and isinstance(item, pytest.Function) and "cluster" in item.funcargs:
        site = item.funcargs["cluster"]
        assert isinstance(site, Site)
        made = [each for value in item.funcargs.values() for each in _namespaces_of(value)]
        folder = REPORTS / re.sub(r"\W+", "-", f"{item.name}-{report.when}")
        collect(folder, [*dict.fromkeys([*made, SYSTEM, STORE_NAMESPACE])], site.api, site.kubectl)
        report.sections.append(("cluster", f"objects, events and logs are in {folder.relative_to(ROOT)}"))
    return report


def _namespaces_of(value: object) -> list[str]:
    if isinstance(value, Namespace):
        return [value.name]
    return list(value.made) if isinstance(value, Namespaces) else []


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Say:
    """Print a line at once, whatever pytest captures."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    began = time.monotonic()

    def line(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n== cluster, {time.monotonic() - began:.0f} s: {text}", flush=True)

    return line


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, say: Say) -> Iterator[Site]:
    """The cluster of the session. What cannot run here ends the session with a sentence."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with ExitStack() as stack:
        try:
            site = stack.enter_context(open_site(say, capture.global_and_fixture_disabled))
        except CannotRun as error:
            pytest.exit(str(error), returncode=1)
        yield site


@pytest.fixture(scope="session")
def store(cluster: Site, say: Say) -> Iterator[Store]:
    """An S3 server in the cluster."""
    say("starting an S3 server in it")
    with ExitStack() as stack:
        yield serve_store(cluster, stack)


@pytest.fixture(scope="session")
def controller(cluster: Site, say: Say) -> Iterator[Controller]:
    """The chart, installed as its users do."""
    say("installing the chart")
    with install_controller(cluster) as controller:
        say("ready")
        yield controller


@pytest.fixture
def namespaces(cluster: Site, store: Store, controller: Controller) -> Iterator[Namespaces]:
    """Makes further namespaces for one test."""
    made = Namespaces(cluster.api, cluster.kubectl, store, cluster.images)
    yield made
    made.delete()


@pytest.fixture
def namespace(namespaces: Namespaces, request: pytest.FixtureRequest) -> Namespace:
    """A namespace of the test's own, with a bucket, where only restricted pods are admitted."""
    return namespaces.create(request.node.name)


@pytest.fixture(scope="module")
def shared_namespaces(cluster: Site, store: Store, controller: Controller) -> Iterator[Namespaces]:
    """Makes namespaces for a module whose runs start together, each test with its own."""
    made = Namespaces(cluster.api, cluster.kubectl, store, cluster.images)
    yield made
    made.delete()


@pytest.fixture
def hosts(cluster: Site) -> list[str]:
    """Names of the nodes; the store and the controller are on the first."""
    return cluster.hosts()
