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
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

.PHONY: demo
demo: $(STAMP)  ## Train on Python's own library with four nodes at 4:2:2:1: the main job, no server, about two minutes
	@hack/demo

.PHONY: test
test: plan-of-test check test-unit test-integration test-cluster-if-possible  ## Checks, then all tests, the fastest first

.PHONY: plan-of-test
plan-of-test:
	@hack/plan-of-test

.PHONY: check
check: $(STAMP)  ## Formatting, lint, types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: test-unit
test-unit: $(STAMP)  ## Unit tests, module by module, about two minutes
	$(BIN)/pytest tests/unit

.PHONY: test-integration
test-integration: $(STAMP)  ## Integration tests: real processes, files and moto's S3 server
	$(BIN)/pytest tests/integration

.PHONY: test-cluster
test-cluster: $(STAMP)  ## Tests on a real Kubernetes, built and started for them and taken down after
	$(BIN)/pytest tests/cluster

.PHONY: test-cluster-if-possible
test-cluster-if-possible: $(STAMP)
	@if why=$$($(BIN)/python -m tests.cluster.harness.possible 2>&1); then $(MAKE) --no-print-directory test-cluster; \
	else echo "== NOT RUN: tests/cluster. $$why"; fi

.PHONY: bench
bench: $(STAMP)  ## Every benchmark, one line per figure (about 12 minutes)
	$(BIN)/python -m bench.page
	$(BIN)/python -m bench.claims
	$(BIN)/python -m bench.report
	$(BIN)/python -m bench.scrape
	$(BIN)/python -m bench.loop
	$(BIN)/python -m bench.balance

.PHONY: crd
crd: $(STAMP)  ## Write the CRD anew from gradientmail.run
	$(BIN)/python hack/crd.py

.PHONY: metrics
metrics: $(STAMP)  ## Write docs/metrics.md anew from the declarations of the metrics
	$(BIN)/python hack/metrics_page.py

.PHONY: dashboards
dashboards: $(STAMP)  ## Write the Grafana dashboards anew from hack/dashboards
	$(BIN)/python -m hack.dashboards

.PHONY: format
format: $(STAMP)  ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: images
images:  ## Build the full images, torch included (12 GB, five to ten minutes)
	$(PYTHON) hack/cluster build --file Dockerfile.controller --tag localhost/gradientrun-controller:0.1.0 .
	$(PYTHON) hack/cluster build --file Dockerfile.trainer --tag localhost/gradientmail-trainer:0.1.0 .

.PHONY: clean
clean:  ## Remove what make and the tools have written into the tree; runs/ stays
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
