#!/bin/sh
# Compile the locks: every version pinned, no index address. Run by `make lock`.
set -eu
cd "$(dirname "$0")/.."
lock() {
  output=$1
  shift
  uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate \
    --override requirements/workspace.in --no-emit-package gradientmail --output-file "requirements/$output" "$@"
}
lock core.txt trainer/pyproject.toml
lock trainer.txt trainer/pyproject.toml --extra torch
lock controller.txt controller/pyproject.toml
lock test.txt trainer/pyproject.toml --extra local controller/pyproject.toml requirements/test.in
