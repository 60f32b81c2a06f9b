# minisgl: `make lab` opens the first notebook, `make demo` does without a browser, `make test` checks everything.
# Works with GNU make 3.81 and later on Linux and macOS.

SHELL  := /bin/bash
PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check
MODEL  ?= smollm2-135m
# Downloads show how far they are, except where nobody watches.
QUIET  := $(if $(CI),-q)

# Which PyTorch: cpu, cuda, or auto (cuda if an NVIDIA GPU answers, else cpu).
TORCH ?= auto
ifeq ($(TORCH),auto)
  TORCH_BUILD := $(shell nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)
else
  TORCH_BUILD := $(TORCH)
endif
# What pip is told to install for it. Linux's default build carries gigabytes of CUDA, so the CPU build comes from
# PyTorch's own index; on macOS there is only one build. Set TORCH_PIP to install something else, from wherever
# your pip is configured to look: make lab TORCH_PIP=torch==2.9.0
ifeq ($(TORCH_BUILD)-$(shell uname -s),cpu-Linux)
  TORCH_PIP ?= torch --index-url https://download.pytorch.org/whl/cpu
else
  TORCH_PIP ?= torch
endif

# Threads that wait for work by spinning are a third faster on an idle machine and ten times slower on a busy one.
export OMP_WAIT_POLICY ?= PASSIVE

LAB_OPEN    ?= notebooks/00_watch_a_run.ipynb
LAB_ARGS    ?=
DEMO_HTML   ?= demo.html
PYTEST_ARGS ?=
FUZZ        ?= 20000

ifeq ($(filter $(TORCH_BUILD),cpu cuda),)
  $(error TORCH=$(TORCH) is not known; use TORCH=auto, TORCH=cpu or TORCH=cuda)
endif

.DEFAULT_GOAL := help
.PHONY: help lab demo test fuzz mutants notebooks screenshots env env-dev env-js model lint check-types clean

help: ## list these targets
	@echo "usage: make TARGET [TORCH=auto|cpu|cuda] [PYTHON=python3.12]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

lab: env model ## set everything up and open the first notebook in JupyterLab
	@echo "==> Starting JupyterLab (Ctrl-C twice stops it)"
	@$(PY) -m jupyterlab $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB_OPEN) $(LAB_ARGS)

demo: env model ## the same run without a browser: prints the step table, writes demo.html
	@echo "==> Running the demo"
	@$(PY) -m minisgl_widgets.demo --html $(DEMO_HTML)

test: env-dev env-js lint check-types model ## check everything: style, types, tests, notebooks, browser
	@echo "==> Running tests, notebooks and browser tests"
	@$(PY) -m pytest tests $(wildcard notebooks) --nbval --nbval-current-env --nbval-cell-timeout=120 $(PYTEST_ARGS)

fuzz: env-dev ## random runs of every state machine, FUZZ=20000 of each; prints what they came across
	@echo "==> Making $(FUZZ) random runs of every state machine (takes a while: FUZZ=1000 is quicker)"
	@MINISGL_FUZZ=$(FUZZ) $(PY) -m pytest $(wildcard tests/*/test_*_machine.py) --timeout=0 $(PYTEST_ARGS)

mutants: env-dev ## put known bugs back, one at a time; prints which test catches each
	@$(PY) -m tests.mutations

notebooks: env-dev model ## run every notebook again and store its outputs, byte-stable
	@echo "==> Running the notebooks again"
	@$(PY) tools/refresh_notebooks.py notebooks

SHOTS ?= screenshots

screenshots: env-dev ## take pictures of every view, light and dark, into SHOTS, and those of the README into docs
	@echo "==> Taking pictures (needs Chromium)"
	@$(PY) tools/screenshots.py --out $(SHOTS)

env: $(VENV)/.stamp-lab ## only the environment of lab and demo

env-dev: $(VENV)/.stamp-dev ## only the environment of test

env-js: tests/js/node_modules/.stamp ## only what checks the views' JavaScript (nothing, where there is no npm)

model: $(VENV)/.stamp-lab ## only the model
	@echo "==> Looking for the model $(MODEL) (fetched once)"
	@$(PY) -m minisgl.models.hub $(MODEL)

lint: $(VENV)/.stamp-dev ## style only
	@echo "==> Checking style (ruff)"
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

check-types: $(VENV)/.stamp-dev ## types only
	@echo "==> Checking types (mypy)"
	@$(PY) -m mypy

clean: ## remove the environment, caches and outputs (the model's cache stays)
	@echo "==> Removing $(VENV), caches and outputs"
	@rm -rf $(VENV) tests/js/node_modules build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .ci/artifacts screenshots $(DEMO_HTML) notebooks/runs
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- the stages; each leaves a stamp, so the second time costs nothing --------------------------------------------

$(VENV)/.stamp-venv:
	@echo "==> Creating the environment in $(VENV)"
	@command -v $(PYTHON) >/dev/null || { \
	  echo "minisgl: there is no '$(PYTHON)' here; install Python 3.10 or later, or name one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "minisgl: '$(PYTHON)' is $$($(PYTHON) -V 2>&1), but 3.10 or later is needed; name one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "minisgl: '$(PYTHON)' has no venv module; on Debian and Ubuntu: sudo apt install python3-venv"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.stamp-torch: $(VENV)/.stamp-venv
	@echo "==> Installing PyTorch, $(TORCH_BUILD) build (a few hundred MB, once)"
	@$(PIP) install $(QUIET) $(TORCH_PIP) || { \
	  echo "minisgl: pip could not install '$(TORCH_PIP)' (its reason is above)."; \
	  echo "         If PyTorch's index cannot be reached from here, say what to install: make TORCH_PIP=torch"; exit 1; }
	@touch $@

$(VENV)/.stamp-lab: $(VENV)/.stamp-torch pyproject.toml
	@echo "==> Installing minisgl and JupyterLab (about a minute, once)"
	@$(PIP) install $(QUIET) -e ".[lab]" || { echo "minisgl: pip could not install the packages (its reason is above)"; exit 1; }
	@touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp-lab
	@echo "==> Installing the test tools (once)"
	@$(PIP) install $(QUIET) -e ".[lab,dev]" || { echo "minisgl: pip could not install the packages (its reason is above)"; exit 1; }
	@touch $@

tests/js/node_modules/.stamp: tests/js/package-lock.json
	@if command -v npm >/dev/null; then \
	  echo "==> Installing what checks the views' JavaScript (once)"; \
	  npm ci --prefix tests/js --omit=optional --no-audit --no-fund --loglevel=error || { \
	  echo "minisgl: npm could not install the packages (its reason is above)"; exit 1; }; \
	  touch $@; \
	else \
	  echo "==> No npm here: the checks of types and accessibility in JavaScript will be skipped"; \
	fi
