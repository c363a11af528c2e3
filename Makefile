# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
KERNEL := CMakeLists.txt $(wildcard src/_kernels/*)
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q
# auto, system, or what pip shall install, e.g. 'torch==2.13.0 --index-url URL': scripts/install_torch.py
TORCH  ?= auto
PINS   := -c $(VENV)/constraints.txt
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow mutants sanitize clang fuzz check format bench docs site notebooks wheel js clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 12

setup: $(STAMP)  ## build .venv with every extra, versions pinned by constraints.txt

$(STAMP): pyproject.toml constraints.txt $(KERNEL)
	@echo "setting up $(VENV) (a few minutes the first time)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) $(if $(filter system,$(TORCH)),--system-site-packages)
	$(BIN)/python scripts/install_torch.py $(TORCH)
	$(PIP) install $(PINS) scikit-build-core nanobind ninja
	$(PIP) install $(PINS) --no-build-isolation -e '.[flower,mqtt,bench,docs,dev]'
	@touch $@

demo: $(STAMP)  ## the main job: a sketched federated training on the embedded digits, with its report
	$(BIN)/desketch train

test: $(STAMP)  ## all tests but the slow ones
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(STAMP)  ## the long tests: real kills, real browsers, real networks
	$(BIN)/python -m pytest -m slow --timeout 3600

mutants: $(STAMP)  ## break the code on purpose, in a copy, and list the breaks no test notices (about 4 minutes)
	$(BIN)/python tests/mutants/run.py

sanitize: $(STAMP)  ## the kernels under ASan and UBSan, built into a temporary folder, over the conformance suites
	$(BIN)/python tests/native/builds.py sanitize

clang: $(STAMP)  ## the kernels as clang compiles them, over the same suites
	$(BIN)/python tests/native/builds.py clang

RUNS ?= 100000
fuzz: $(STAMP)  ## fuzz frames, codecs and session messages; RUNS=1000000 executions of each target, TARGETS=frame,order
	$(PIP) install $(PINS) atheris
	$(BIN)/python tests/fuzz/run.py --runs $(RUNS) --targets '$(TARGETS)' $(if $(JSON),--json $(JSON))

check: $(STAMP)  ## formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP)  ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## measure the kernels and the engine
	$(BIN)/desketch bench kernels --json benchmarks/results/kernels.json
	$(BIN)/desketch bench engine --json benchmarks/results/engine.json
	$(BIN)/desketch bench scale --json benchmarks/results/scale.json

docs: $(STAMP)  ## regenerate the tables of README and docs from benchmarks/results
	$(BIN)/python docs/settings.py
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/figures.py

site: docs  ## build the documentation site into build/site/html: strict, and without a network
	$(BIN)/python docs/site.py

notebooks: $(STAMP)  ## run the notebooks of docs/notebooks and write their pages (about 5 minutes)
	$(BIN)/python docs/execute.py
	$(BIN)/ruff format docs/notebooks

wheel: $(STAMP)  ## an sdist and a wheel for this machine in dist/
	$(BIN)/python -m build --no-isolation

js: clients/js/node_modules/.ready  ## type-check and build the JavaScript client (needs Node 20 and npm)
	cd clients/js && npm run build

clients/js/node_modules/.ready: clients/js/package.json clients/js/package-lock.json
	cd clients/js && npm ci
	@touch $@

clean:  ## remove everything that was built
	rm -rf $(VENV) clients/js/node_modules build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
