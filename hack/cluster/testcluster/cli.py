"""The command line: ``python3 hack/cluster COMMAND``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from .builders import Build, parse_arguments
from .errors import ClusterError
from .providers import NAMES, PROVIDER_VARIABLE, Provider, choose
from .settings import Settings
from .shell import say

BASE_ARGUMENT = "BASE"
Command = Callable[[Provider, argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    0 done, 1 refused or failed, 2 wrong usage, 130 interrupted, 141 nobody reads the output.
    """
    options = parser().parse_args(arguments)
    command: Command = options.command
    try:
        status = command(choose(options.provider), options)
        sys.stdout.flush()
    except ClusterError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("Interrupted; `python3 hack/cluster down` removes what was started.")
        return 130
    except BrokenPipeError:  # `… status | head`; what is left in the buffer must not be written at the end, either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def parser() -> argparse.ArgumentParser:
    """The command line's parser."""
    root = argparse.ArgumentParser(prog="python3 hack/cluster", description="A real Kubernetes for tests.")
    root.set_defaults(provider=None)
    _add_provider(root)
    commands = root.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_up(commands)
    _add_images(commands)
    simple: dict[str, tuple[Command, str]] = {
        "down": (_down, "remove the cluster with all it left on the machine"),
        "check-clean": (_check_clean, "list what is left of a cluster; status 1 if anything is"),
        "status": (_status, "say what runs"),
        "kubeconfig": (_kubeconfig, "print the path of the administrator's kubeconfig"),
        "env": (_env, "print shell commands that set KUBECONFIG and put kubectl and helm on PATH"),
        "stop-apiserver": (_stop_apiserver, "stop the API server and wait until it is gone"),
        "start-apiserver": (_start_apiserver, "start the API server and wait until it is ready"),
        "restart-apiserver": (_restart_apiserver, "stop, then start the API server"),
    }
    for name, (command, text) in simple.items():
        _add(commands, name, command, text)
    kill = _add(commands, "kill-node", _kill_node, "fail a node at once: SIGKILL for kubelet, containerd and all pods")
    kill.add_argument("--no-wait", action="store_true", help="do not wait until the API server has noticed")
    start = _add(commands, "start-node", _start_node, "bring a failed node back and wait until it is Ready")
    for node in (kill, start):
        node.add_argument("node", metavar="NODE", help="name of the node, like node-2")
    return root


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, command: Command, text: str
) -> argparse.ArgumentParser:
    added = commands.add_parser(name, help=text, description=text)
    added.set_defaults(command=command)
    _add_provider(added)
    return added


def _add_provider(to: argparse.ArgumentParser) -> None:
    """Accept --provider before and after the command; neither place may undo what the other was given."""
    text = f"where the cluster comes from: {', '.join(NAMES)} (or set {PROVIDER_VARIABLE})"
    to.add_argument("--provider", choices=NAMES, metavar="NAME", default=argparse.SUPPRESS, help=text)


def _add_up(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "bring up a cluster, or complete the one that runs, and wait until it is ready"
    up = _add(commands, "up", _up, text)
    default = Settings()
    up.add_argument("--nodes", type=int, default=default.nodes, help="number of nodes (default: %(default)s)")
    up.add_argument("--gpus", type=int, default=default.gpus, help="pretend GPUs of each node (default: %(default)s)")
    up.add_argument(
        "--eviction-seconds",
        type=int,
        default=default.eviction_seconds,
        help="how long pods stay bound to a node that is gone (default: %(default)s; Kubernetes' own is 300)",
    )
    up.add_argument("--network", default=default.network, help="private range for all addresses (default: %(default)s)")


def _add_images(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "build an image from a Dockerfile, without a registry"
    build = _add(commands, "build", _build, text)
    build.add_argument("--file", type=Path, required=True, help="the Dockerfile")
    build.add_argument("--tag", required=True, help="name of the image, like localhost/example:test")
    build.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE", help="a build argument")
    build.add_argument("context", type=Path, metavar="FOLDER", help="the folder the Dockerfile copies from")
    text = "put images on every node"
    load = _add(commands, "load", _load, text)
    load.add_argument("images", nargs="+", metavar="IMAGE", help="name of an image that was built, or a .tar archive")
    text = "make the base image that Dockerfiles start from where no registry is reached, and print its name"
    _add(commands, "images", _images, text)


def _up(provider: Provider, options: argparse.Namespace) -> int:
    settings = Settings(options.nodes, options.gpus, options.eviction_seconds, options.network)
    provider.up(settings)
    say(f'The cluster is ready ({provider.name}). To use it: eval "$(python3 hack/cluster env)"')
    return 0


def _down(provider: Provider, _: argparse.Namespace) -> int:
    provider.down()
    return _check_clean(provider, _)


def _check_clean(provider: Provider, _: argparse.Namespace) -> int:
    left = provider.leftovers()
    for line in left:
        say(f"left: {line}")
    say("Something is left of a cluster." if left else "Nothing is left of a cluster.")
    return 1 if left else 0


def _status(provider: Provider, _: argparse.Namespace) -> int:
    print("\n".join([f"provider: {provider.name}", *provider.status()]))
    return 0


def _kubeconfig(provider: Provider, _: argparse.Namespace) -> int:
    print(provider.kubeconfig())
    return 0


def _env(provider: Provider, _: argparse.Namespace) -> int:
    print(f"export KUBECONFIG='{provider.kubeconfig()}'")
    folders = ":".join(str(folder) for folder in provider.programs())
    if folders:
        print(f"export PATH='{folders}':\"$PATH\"")
    return 0


def _build(provider: Provider, options: argparse.Namespace) -> int:
    arguments = parse_arguments(options.build_arg)
    build = Build(file=options.file, tag=options.tag, context=options.context, arguments=arguments)
    base = None if BASE_ARGUMENT in arguments else provider.base_image()
    if base is not None:
        build = Build(build.file, build.tag, build.context, {**arguments, BASE_ARGUMENT: base})
    provider.builder().build(build)
    return 0


def _load(provider: Provider, options: argparse.Namespace) -> int:
    for image in options.images:
        if image.endswith(".tar") and not Path(image).is_file():
            raise ClusterError(f"The archive {image} does not exist; give an archive or the name of an image.")
    provider.load(options.images)
    return 0


def _images(provider: Provider, _: argparse.Namespace) -> int:
    base = provider.base_image()
    if base is None:
        say(f"With {provider.name}, Dockerfiles start from the image they name; there is nothing to make.")
    else:
        print(base)
    return 0


def _kill_node(provider: Provider, options: argparse.Namespace) -> int:
    provider.kill_node(options.node)
    if not options.no_wait:
        provider.wait_not_ready(options.node)
    return 0


def _start_node(provider: Provider, options: argparse.Namespace) -> int:
    provider.start_node(options.node)
    return 0


def _stop_apiserver(provider: Provider, _: argparse.Namespace) -> int:
    provider.stop_apiserver()
    return 0


def _start_apiserver(provider: Provider, _: argparse.Namespace) -> int:
    provider.start_apiserver()
    return 0


def _restart_apiserver(provider: Provider, _: argparse.Namespace) -> int:
    provider.stop_apiserver()
    provider.start_apiserver()
    return 0
