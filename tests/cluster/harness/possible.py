"""Whether tests/cluster can run on this machine: status 0, or a sentence that says why not and status 1."""

from __future__ import annotations

import os
import sys

from tests.cluster.harness.images import named_images
from tests.cluster.harness.tool import CommandFailed, Tool


def main() -> None:
    """Look at the machine; nothing is installed, built or started."""
    try:
        named_images(Tool().provider, os.environ)
    except (CommandFailed, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
