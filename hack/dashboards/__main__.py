"""Write the dashboards that the chart ships, or with --check say whether they are up to date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hack.dashboards.building import as_json
from hack.dashboards.fleet import FLEET
from hack.dashboards.run import RUN

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "charts/gradientmail/files/dashboards"


def main() -> int:
    """Write or check the files; one that is in the folder and made by nothing is stale too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file is stale")
    arguments = parser.parse_args()
    made = {FOLDER / f"{spec.uid}.json": as_json(spec) for spec in (RUN, FLEET)}
    present = {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    stale = sorted(path for path in made.keys() | present.keys() if made.get(path) != present.get(path))
    for path in stale:
        if arguments.check:
            print(f"{path.relative_to(ROOT)} is stale: run `make dashboards`", file=sys.stderr)
        elif path in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[path], encoding="utf-8")
        else:
            path.unlink()
    return int(arguments.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
