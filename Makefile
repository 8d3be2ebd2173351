# One command equals CI: `make test`. Everything lives in .venv; the stamps make a second run cost nothing.
.DEFAULT_GOAL := help
.PHONY: help install install-spark run test test-core test-spark check format bench lock clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
RUNTIME := $(VENV)/.runtime-stamp
BYTECODE := $(VENV)/.bytecode-stamp
DEV := $(VENV)/.dev-stamp
SPARK := $(VENV)/.spark-stamp
WARM := $(VENV)/spark.aot
JOBS := $(shell echo $$((2 * $$(nproc))))  # tests at once: half of a test's time is waiting for a daemon
COMPILE := $(BIN)/uv pip compile --quiet --upgrade --universal --fork-strategy fewest --generate-hashes --no-header \
           --no-annotate pyproject.toml
PACKAGES := catalog storage scheduler router qos_monitor load_shedder engine

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(BYTECODE) ## the daemon and what it needs, in .venv

install-spark: $(SPARK) ## and Spark with it, for bulk sources and sinks; brings its own Java where there is none

run: $(BYTECODE) ## the demo: a market under bursts, live in the terminal; Ctrl-C ends it
	@$(BIN)/aurorad demo

# Types and warming Spark up take what the tests leave of the cores. Not while pip still lays files down that mypy may read.
test: LAZY := --no-compile # nobody waits for the first import of what no test uses
test: $(DEV) $(SPARK) ## lint, types and every test: what CI runs
	@$(MAKE) --no-print-directory -j3 check $(WARM) test-core
	@$(MAKE) --no-print-directory test-spark

test-core: $(DEV) ## the tests that need neither Spark nor Java
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup -m "not spark and not quiet"

test-spark: $(DEV) $(WARM) ## the tests of the pipeline on Spark, which need no Java on the machine
	@$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m "spark and not quiet"

check: $(DEV) ## lint and types
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(BIN)/mypy --no-error-summary

format: $(DEV) ## lay the code out and sort its imports
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix --select I .

bench: $(BYTECODE) ## every benchmark against its baseline (BENCH="chain --queries 40" for one)
	@$(BIN)/aurorad bench $(or $(BENCH),all)

lock: $(DEV) ## pin all dependencies again, after pyproject.toml has changed
	@$(PIP) install uv
	@$(COMPILE) --extra build -o requirements.lock
	@$(COMPILE) --extra build --extra dev -o requirements-dev.lock
	@$(COMPILE) --extra build --extra spark -o requirements-spark.lock

clean: ## forget the environment and every cache
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find $(PACKAGES) tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)

# setuptools comes from the lock as well, so that building the editable install fetches nothing unpinned.
$(RUNTIME): pyproject.toml requirements.lock | $(BIN)/python
	@echo "installing the daemon into $(VENV)"
	@$(PIP) install $(LAZY) --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

# A checkout is not compiled by pip; where PYTHONDONTWRITEBYTECODE is set every start would do it anew, 0.3 s of it.
$(BYTECODE): $(RUNTIME) $(shell find $(PACKAGES) -name '*.py')
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@touch $@

$(DEV): requirements-dev.lock $(RUNTIME)
	@echo "installing the development tools into $(VENV)"
	@$(PIP) install --no-compile --require-hashes -r requirements-dev.lock
	@touch $@

$(SPARK): requirements-spark.lock $(RUNTIME)
	@echo "installing Spark into $(VENV)"
	@$(PIP) install --no-compile --require-hashes -r requirements-spark.lock
	@touch $@

# Half of what a JVM of Spark does at its start, done once for all the tests. Without it they are slower, not wrong.
$(WARM): tests/spark/warm.py $(SPARK) | $(DEV)
	@echo "warming Spark up for the tests"
	@$(BIN)/python -m tests.spark.warm $@ >/dev/null 2>&1 || true
	@touch $@
