"""Entry point of ``python3 hack/cluster``, which runs before any virtual environment exists."""

import importlib
import sys

if __name__ == "__main__":
    # By name: this folder is on the path only when it is run, so type checkers know the package by a longer one.
    sys.exit(importlib.import_module("testcluster.cli").main())
