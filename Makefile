# The one entry: each target sets up what it needs, from a bare clone with Python 3.11+, a C/C++ compiler and make.
#   make serve   set up, then serve the embedded model      ARGS="--port 9000" adds flags
#   make test    set up, then run the tests                 ARGS="-k mcp" adds flags; EXPLORE=1: more and other examples, other order
#   make thorough  the tests that show at length what others show in short
#   make clients install agent clients and MCP servers of others, and drive a server with them
#   make conformance  the official MCP suite against the server and the host; `make test` runs it too
#   make check   lint, types and import rules
#   make simulate  play 20,000 histories of clients, faults and crashes; ARGS="--seed 1234 --verbose" plays one
#   make fuzz    ten minutes of Schemathesis and ten of hostile clients, against servers of their own
#   make demo    a short tour against a server of its own
#   make model   train the embedded model from nothing; goes on where it was
#   make model-test  set up for training too, then run its tests

comma := ,
PYTHON ?= python3
VENV ?= .venv
CACHE := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/tenuto
WHEELS ?= $(CACHE)/wheels
BIN := $(VENV)/bin
ARGS ?=
# Where nothing compiled may be kept, each of hundreds of processes would compile all modules.
unexport PYTHONDONTWRITEBYTECODE
# The tests wait for processes of their own more than they compute.
WORKERS ?= $(shell expr 2 '*' $$(getconf _NPROCESSORS_ONLN))
# The order is shuffled, and the same in each run, so that a change is judged by what it changes.
ORDER := $(if $(EXPLORE),,--randomly-seed=1)
# MLX runs models where it has Metal; elsewhere its CPU build is for checks and tests.
APPLE := $(filter Darwin-arm64,$(shell uname -s)-$(shell uname -m))
RUNTIME_EXTRAS ?= llama$(if $(APPLE),$(comma)mlx)
DEV_EXTRAS ?= llama,mlx,dev

.DEFAULT_GOAL := help
.PHONY: help serve test thorough clients conformance fuzz simulate simulate-mutations kill-nine check demo model model-test setup \
  setup-dev lock clean
.DELETE_ON_ERROR:

help:
	@sed -n '2,12s/^# *//p' Makefile

serve: $(VENV)/.runtime
	@exec $(BIN)/tenuto serve $(ARGS)

demo: $(VENV)/.demo
	@exec $(BIN)/python examples/demo.py $(ARGS)

# Exit code 5: ARGS has chosen no test of that kind.
test: $(VENV)/.dev
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m 'not alone and not thorough and not clients' $(ORDER) $(ARGS) || test $$? -eq 5
	$(BIN)/pytest -q -m 'alone and not clients' $(ORDER) $(ARGS) || test $$? -eq 5

clients: $(VENV)/.dev
	$(BIN)/pytest -q -m clients tests/clients tests/third_party $(ARGS)

conformance: $(VENV)/.dev
	$(BIN)/pytest -q tests/conformance $(ARGS)

thorough: $(VENV)/.dev
	EXPLORE=1 $(BIN)/pytest -q -n auto --dist worksteal -m thorough $(ARGS)

fuzz: $(VENV)/.dev
	EXPLORE=1 FUZZ_SECONDS=$${FUZZ_SECONDS:-600} $(BIN)/pytest -q tests/fuzz $(ARGS)

# Seeded histories against the real loop, sessions, store and engine: docs/simulation.md.
simulate: $(VENV)/.dev
	@exec $(BIN)/python -m tests.simulation $(ARGS)

simulate-mutations: $(VENV)/.dev
	@exec $(BIN)/python -m tests.simulation.mutations $(ARGS)

kill-nine: $(VENV)/.dev
	@exec $(BIN)/python -m tests.faults.kill_nine $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

model: $(VENV)/.train
	cd examples && ../$(BIN)/python -m train_embedded_model.train --out ../build/model $(ARGS)
	cd examples && ../$(BIN)/python -m train_embedded_model.export ../build/model/checkpoint.pt ../build/model/out

model-test: $(VENV)/.train
	$(BIN)/pytest -q tests/examples/train_embedded_model $(ARGS)

setup: $(VENV)/.runtime

setup-dev: $(VENV)/.dev

# The stamps: a target is set up again only when what it is made from has changed.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "tenuto needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo not there)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "python -m venv failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.llama: $(VENV)/.python constraints.txt .ci/llama-wheel .ci/llama-library.cmake
	@.ci/llama-wheel $(BIN)/python "$(WHEELS)"
	@touch $@

$(VENV)/.runtime: $(VENV)/.llama pyproject.toml constraints.txt
	@echo "tenuto: installing the runtime's packages"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(RUNTIME_EXTRAS)]'
	@touch $@

$(VENV)/.demo: $(VENV)/.runtime
	@echo "tenuto: installing the clients that the demo uses"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(RUNTIME_EXTRAS),demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "tenuto: installing the packages for checks and tests"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(DEV_EXTRAS)]'
	@touch $@

$(VENV)/.train: $(VENV)/.dev
	@echo "tenuto: installing the packages for training; PyTorch is large"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(DEV_EXTRAS),train]'
	@touch $@

# Take the versions that are installed now as those that everybody gets.
lock: $(VENV)/.train
	@$(BIN)/python -m pip freeze --exclude-editable --exclude tenuto | sed 's/ @ file:.*//' > constraints.new
	@$(BIN)/python -c 'from importlib.metadata import version; print("llama_cpp_python==" + version("llama-cpp-python"))' >> constraints.new
	@grep == constraints.new | LC_ALL=C sort -fu > constraints.txt; rm constraints.new

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
