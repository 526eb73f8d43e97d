"""A cluster for as long as a block lasts, with the product in it; tests and the bench use the same."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.cluster.harness.api import Api
from tests.cluster.harness.controller import NAMESPACE, Controller
from tests.cluster.harness.images import provide_images
from tests.cluster.harness.namespaces import create_namespace, delete_everything
from tests.cluster.harness.site import Site
from tests.cluster.harness.tool import FIRST_UP_SECONDS, CommandFailed, Helm, Kubectl, Tool

DELETION_SECONDS = 240.0
LOCK = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gradientmail" / "cluster-tests.lock"
Say = Callable[[str], None]
Shown = Callable[[], AbstractContextManager[object]]


class CannotRun(Exception):
    """This machine cannot run the cluster; the sentence says what it lacks."""


@contextmanager
def _alone(say: Say) -> Iterator[None]:
    """Keep other sessions of this machine off the cluster: they would remove each other's objects."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another session that tests on it ({LOCK})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def open_site(say: Say, shown: Shown) -> Iterator[Site]:
    """Bring a cluster up, or keep the one that is up, with the images under test on its nodes.

    One that was brought up is taken down, and then nothing may be left of it; from one that was up before, what was
    made is removed. `shown` gives a context in which programs may write to the terminal. Raises CannotRun.
    """
    with _alone(say):
        yield from _site(Tool(), say, shown)


def _site(tool: Tool, say: Say, shown: Shown) -> Iterator[Site]:
    was_up, site = _begin(tool, say, shown)
    try:
        delete_everything(site.api, DELETION_SECONDS)
        yield site
        if was_up:
            say("taking the tests' objects out of it")
            delete_everything(site.api, DELETION_SECONDS)
    finally:
        site.api.close()
        if not was_up:
            say("taking it down")
            tool("down")
    if not was_up:
        tool("check-clean")


def _begin(tool: Tool, say: Say, shown: Shown) -> tuple[bool, Site]:
    try:
        was_up = tool.provider == "existing" or tool.is_up()
        say("using the one that runs" if was_up else "bringing one up; the first time takes a quarter of an hour")
        with shown():
            tool("up", seconds=FIRST_UP_SECONDS, show=True)
            images = provide_images(tool, os.environ, say)
    except (CommandFailed, ValueError) as error:
        raise CannotRun(f"the tests on a cluster cannot run here: {error}") from error
    api = Api(Path(tool.environment["KUBECONFIG"]))
    return was_up, Site(tool, api, Kubectl(tool.environment), Helm(tool.environment), images)


@contextmanager
def install_controller(site: Site) -> Iterator[Controller]:
    """Install the chart as its users do, in a namespace under restricted Pod Security; remove it with all runs."""
    controller = Controller(site.api, site.kubectl, site.helm, site.images, site.hosts()[0])
    create_namespace(site.api, NAMESPACE)
    controller.install()
    yield controller
    controller.uninstall(keep_runs=False)
