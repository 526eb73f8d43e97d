# Every target works as the first command on a fresh machine. `make` alone says what each does.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/test.txt
STAMP := $(VENV)/.installed

.PHONY: help
help:  ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(STAMP)  ## Install everything into .venv (first time: torch alone is 5 GB on disk, some 3 minutes)

$(STAMP): $(LOCK) trainer/pyproject.toml controller/pyproject.toml
	@echo "== installing into $(VENV): torch and its libraries are 5 GB on disk; the first time takes about 3 minutes, later seconds"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'
	@$(BIN)/uv pip install --python $(BIN)/python --requirement $(LOCK)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable ./trainer --editable ./controller
	@touch $@

.PHONY: lock
lock: $(STAMP)  ## Compile requirements/*.txt anew
	@PATH="$(abspath $(BIN)):$$PATH" sh requirements/compile.sh
