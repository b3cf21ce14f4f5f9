# Two commands matter: `make reproduce` and `make test`. Both build the virtual environment they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out

.PHONY: help setup reproduce test test-all test-strangers lint bench evidence docs clean

help:
	@echo "make reproduce   install, run the paper's studies, write figures and report to $(OUT)/, say which claims hold"
	@echo "make test        install, then ruff, mypy and the fast tests"
	@echo "make test-all    the same with the slow tests"
	@echo "make test-strangers  what torch and optax demand of their own optimizers, for ours"
	@echo "make lint        ruff and mypy alone"
	@echo "make bench       speed against peers and limits, 20 minutes, and a list of the goals that were missed"
	@echo "make evidence    how often answers are right: trains networks for hours"
	@echo "make docs        build the documentation"

# The stamps hold the venv's state: they are older than pyproject.toml or constraints.txt when it must be renewed.
$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "surefoot needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.user: $(VENV)/.python pyproject.toml constraints.txt
	$(BIN)/pip install -c constraints.txt -e '.[pep]'
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml constraints.txt
	$(BIN)/pip install -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.user

setup: $(VENV)/.dev

reproduce: $(VENV)/.user
	$(BIN)/surefoot reproduce --out $(OUT)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The report's tests drive a real browser; where it cannot be installed they are skipped, and say so.
$(VENV)/.browser: $(VENV)/.python
	@command -v chromium >/dev/null || (command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
	  && echo "installing chromium" && apt-get update -q && apt-get install -q -y --no-install-recommends chromium) \
	  || echo "chromium is not installed: the tests of the report's page will be skipped"
	@touch $@

# Each worker takes files as a whole as long as it can, so that what a file starts is started once.
test: lint $(VENV)/.browser
	$(BIN)/pytest -n 2 --dist worksteal

# torch's database of optimizers is in its wheel: nothing is fetched.
test-strangers: $(VENV)/.dev
	$(BIN)/pytest tests/strangers -m ''

test-all: lint $(VENV)/.browser
	$(BIN)/pytest -n 2 --dist worksteal -m ''

# BENCH=--quick shortens both.
bench evidence: $(VENV)/.dev
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev,bench]'
	$(BIN)/python benchmarks/_all.py $(if $(filter evidence,$@),--evidence) $(BENCH)

docs: $(VENV)/.dev
	$(BIN)/pip install --quiet -c constraints.txt -e '.[docs]'
	$(BIN)/python -m zensical build --clean --strict

clean:
	rm -rf $(VENV) build dist site $(OUT) .mypy_cache .ruff_cache .pytest_cache
