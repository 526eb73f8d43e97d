"""Entry point of ``python3 hack/cluster``."""

import sys

from testcluster.cli import main

if __name__ == "__main__":
    sys.exit(main())
