"""The images under test: built here from the project's Dockerfiles, or named by the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from tests.cluster.harness.tool import BUILD_SECONDS, Tool

CONTROLLER_VARIABLE = "GRADIENTMAIL_TEST_CONTROLLER_IMAGE"
TRAINER_VARIABLE = "GRADIENTMAIL_TEST_TRAINER_IMAGE"
CONTROLLER = "localhost/gradientrun-controller:test"
TRAINER = "localhost/gradientmail-trainer:test"

ELSEWHERE = (
    f"on a cluster other than this machine's own, set {CONTROLLER_VARIABLE} and {TRAINER_VARIABLE} to images that its "
    "nodes can pull; the trainer's must hold torch and moto's server"
)


@dataclass(frozen=True)
class Images:
    """What pods are made of."""

    controller: str
    trainer: str
    policy: str
    libraries: Path
    """The folder with torch on every node."""
    holds_torch: bool
    """Whether the trainer's image has torch itself."""


def named_images(provider: str, environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the controller's and the trainer's image that the environment names; None where they are built here.

    Raises ValueError where neither can be.
    """
    controller, trainer = environment.get(CONTROLLER_VARIABLE, ""), environment.get(TRAINER_VARIABLE, "")
    if controller and trainer:
        return controller, trainer
    if controller or trainer or provider != "bare":
        raise ValueError(ELSEWHERE)
    return None


def provide_images(tool: Tool, environment: Mapping[str, str], say: Callable[[str], None]) -> Images:
    """Build and load the slim images, or take those that the environment names. Raises ValueError without either."""
    libraries = Path(torch.__file__).parents[1]
    named = named_images(tool.provider, environment)
    if named:
        return Images(*named, policy="IfNotPresent", libraries=libraries, holds_torch=True)
    say("building the images of the controller and of the trainer, without torch")
    build = ("build", "--file")
    tool(*build, "Dockerfile.controller", "--tag", CONTROLLER, ".", seconds=BUILD_SECONDS, show=True)
    tool(
        *build, "Dockerfile.trainer", "--build-arg", "TORCH=0", "--tag", TRAINER, ".", seconds=BUILD_SECONDS, show=True
    )
    say("loading them on every node")
    tool("load", CONTROLLER, TRAINER, seconds=BUILD_SECONDS, show=True)
    return Images(CONTROLLER, TRAINER, policy="Never", libraries=libraries, holds_torch=False)
