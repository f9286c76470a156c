# `make help` lists the targets. PYTHON=python3.11 chooses the interpreter that makes .venv.
PYTHON ?= python3
# Twice the cores: many tests wait, for schedulers and for processes to end.
WORKERS ?= 4
BIN := .venv/bin

export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo venv services lint test test-full clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: ## train a small model on this machine, from nothing to generated text
	@$(PYTHON) scripts/make_venv.py --extra train
	$(BIN)/hpcjob submit jobs/quickstart.yml --profile local --follow

venv: ## make .venv with what development and tests need
	@$(PYTHON) scripts/make_venv.py --extra test

services: ## install the real Slurm, Grid Engine, Open MPI, pdsh, sshd and modules (root on Debian or Ubuntu)
	@PYTHON=$(PYTHON) scripts/install_services.sh

lint: venv ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: ## what CI runs: lint, the fast tests, whole runs, a real Slurm and a real Grid Engine
	@$(MAKE) --no-print-directory -j2 services venv
	@$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not full and not gpu"

test-full: test ## everything of `make test`, then the large counts
	$(BIN)/python -m pytest -m full

clean: ## remove the environment, caches and outputs of runs in this folder
	rm -rf .venv build dist outputs .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
