# One command equals CI: `make test`. Everything lives in .venv; the stamps make a second run cost nothing.
.DEFAULT_GOAL := help
.PHONY: help install install-spark run test test-core test-spark check format docs console bench fuzz lock clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python --system-certs
RUNTIME := $(VENV)/.runtime-stamp
BYTECODE := $(VENV)/.bytecode-stamp
DEV := $(VENV)/.dev-stamp
SPARK := $(VENV)/.spark-stamp
FUZZING := $(VENV)/.fuzz-stamp
WARM := $(VENV)/spark.aot
BROWSER := $(VENV)/.browser-stamp
JOBS := $(shell echo $$((2 * $$(nproc))))  # tests at once: half of a test's time is waiting for a daemon
PINNED := $(BIN)/uv pip compile --quiet --system-certs --upgrade --universal --fork-strategy fewest --generate-hashes \
          --no-header --no-annotate
PACKAGES := catalog storage scheduler router qos_monitor load_shedder engine
BYTES := --compile-bytecode
unexport PYTHONDONTWRITEBYTECODE # hundreds of processes start in the tests: each would compile everything anew

# What a lock names. uv lays it down in seconds where pip takes a minute. It does not read pip's settings, so an index of
# this machine's own is handed to it; where it does not get through all the same, pip is asked.
INDEX = $(or $(PIP_INDEX_URL),$(shell $(BIN)/python -m pip config get global.index-url 2>/dev/null))
define from_lock
@$(if $(INDEX),UV_DEFAULT_INDEX='$(INDEX)') $(UV) $(BYTES) $(2) --require-hashes -r $(1) || { echo "pip tries instead"; \
	$(PIP) install $(if $(BYTES),,--no-compile) --require-hashes -r $(1); }
endef

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(BYTECODE) ## the daemon, its Python client and what they need, in .venv

install-spark: $(SPARK) ## and Spark with it, for bulk sources and sinks; brings its own Java where there is none

run: $(BYTECODE) ## the demo: a market under bursts, live in the terminal; Ctrl-C ends it
	@$(BIN)/aurorad demo

# Types and warming Spark up take what the tests leave of the cores. Not while pip still lays files down that mypy may read.
test: BYTES := # nobody waits for the first import of what no test uses
test: $(DEV) $(SPARK) $(BROWSER) ## lint, types and every test: what CI runs
	@$(MAKE) --no-print-directory -j3 check $(WARM) test-core
	@$(MAKE) --no-print-directory test-spark

test-core: $(DEV) ## the tests that need neither Spark nor Java
	@$(BIN)/python -m pytest -q --collect-only >/dev/null 2>&1 || true # compiled once, not by each who runs them
	@$(BIN)/python -m pytest -q -n $(JOBS) -m "not spark and not quiet"

test-spark: $(DEV) $(WARM) ## the tests of the pipeline on Spark, which need no Java on the machine
	@$(BIN)/python -m pytest -q -n 2 -m "spark and not quiet" tests/spark tests/property

check: $(DEV) ## lint and types
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(BIN)/mypy --no-error-summary

format: $(DEV) ## lay the code out and sort its imports
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix --select I .

console: ## the page at /, from router/console/source; needs Node, and only to change it
	@cd router/console/source && npm ci --no-audit --no-fund --silent && node build.mjs

docs: $(DEV) ## write the pages of docs/ that are made from the code: boxes, functions, policies, metrics, network file
	@$(BIN)/python -m tests.docs.write

bench: $(BYTECODE) ## every benchmark against its baseline (BENCH="chain --queries 40" for one)
	@$(BIN)/aurorad bench $(or $(BENCH),all)

fuzz: $(FUZZING) ## throw hostile messages at every parser and port for a while (FUZZ="--executions 10000000")
	@$(BIN)/python -m tests.fuzz $(FUZZ)

lock: $(BIN)/uv ## pin all dependencies again, after pyproject.toml has changed
	@$(PINNED) pyproject.toml --extra build -o requirements.lock
	@$(PINNED) pyproject.toml --extra build --extra dev -o requirements-dev.lock
	@$(PINNED) pyproject.toml --extra build --extra dev --extra fuzz -o requirements-fuzz.lock
	@$(PINNED) pyproject.toml --extra build --extra spark -o requirements-spark.lock
	@echo uv | $(PINNED) - -o requirements-uv.lock

clean: ## forget the environment and every cache
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find $(PACKAGES) tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)

$(BIN)/uv: requirements-uv.lock | $(BIN)/python
	@$(PIP) install --no-compile --require-hashes -r requirements-uv.lock
	@touch $@

# setuptools comes from the lock as well, so that building the editable install fetches nothing unpinned.
$(RUNTIME): pyproject.toml clients/python/pyproject.toml requirements.lock | $(BIN)/uv
	@echo "installing the daemon into $(VENV)"
	$(call from_lock,requirements.lock)
	@$(PIP) install --no-deps --no-build-isolation -e . -e clients/python
	@touch $@

# A checkout is not compiled by pip; where PYTHONDONTWRITEBYTECODE is set every start would do it anew, 0.3 s of it.
$(BYTECODE): $(RUNTIME) $(shell find $(PACKAGES) -name '*.py')
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@touch $@

$(DEV): private BYTES :=
$(DEV): requirements-dev.lock $(RUNTIME)
	@echo "installing the development tools into $(VENV)"
	$(call from_lock,requirements-dev.lock)
	@touch $@

# For the tests of the page. Playwright itself is a package; a browser is not.
$(BROWSER): $(DEV)
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && touch $@ && exit 0; done; \
	{ [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 \
	|| echo "there is no Chromium on this machine: the tests of the page will be skipped"; touch $@

$(FUZZING): private BYTES :=
$(FUZZING): requirements-fuzz.lock $(DEV)
	@echo "installing the fuzzers into $(VENV)"
	$(call from_lock,requirements-fuzz.lock)
	@touch $@

# Spark comes as source. What is built of it is laid down and thrown away: squeezing 400 MB of jars in between is for nothing.
$(SPARK): private BYTES :=
$(SPARK): requirements-spark.lock $(RUNTIME)
	@echo "installing Spark into $(VENV)"
	$(call from_lock,requirements-spark.lock,--config-settings-package "pyspark:--build-option=--compression=stored")
	@touch $@

# Half of what a JVM of Spark does at its start, done once for all the tests. Without it they are slower, not wrong.
$(WARM): tests/spark/warm.py $(SPARK) | $(DEV)
	@echo "warming Spark up for the tests"
	@$(BIN)/python -m tests.spark.warm $@ >/dev/null 2>&1 || true
	@touch $@
