"""Where a cluster can come from; `choose` picks one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from ..errors import ClusterError
from .bare import Bare
from .existing import Existing
from .interface import Provider
from .kind import Kind

PROVIDER_VARIABLE = "GRADIENTMAIL_CLUSTER_PROVIDER"
AUTO = "auto"
PROVIDERS: Mapping[str, Callable[[], Provider]] = {"existing": Existing, "kind": Kind, "bare": Bare}
NAMES = (AUTO, *PROVIDERS)

__all__ = ["NAMES", "PROVIDER_VARIABLE", "Provider", "choose", "name_for"]


def choose(asked: str | None) -> Provider:
    """The provider asked for, by option or environment variable, or else the first that can work here."""
    name = asked or os.environ.get(PROVIDER_VARIABLE) or AUTO
    if name not in NAMES:
        raise ClusterError(f"There is no provider {name!r}; give one of {', '.join(NAMES)}.")
    if name == AUTO:
        reasons = {kind: make().missing() for kind, make in PROVIDERS.items()}
        name = name_for(reasons, bare_is_up=Bare().exists())
    return PROVIDERS[name]()


def name_for(missing: Mapping[str, str], *, bare_is_up: bool) -> str:
    """Decide between providers; ``missing`` says what each lacks, empty for one that can work."""
    if bare_is_up and missing["existing"]:
        return "bare"
    for name, reason in missing.items():
        if not reason:
            return name
    lacks = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
    raise ClusterError(f"No way to get a Kubernetes cluster here. {lacks}.")
