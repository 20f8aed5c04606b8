# Two commands matter: `make demo` and `make test`. Both set up .venv first, from hash-locked requirements; `make test` also
# installs the Debian packages that the tests need.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
# Tracing takes 20 to 50 % more time with Python 3.11, so it is left out where tests mostly start other processes.
COVERED := tests/unit tests/equations tests/contracts
# Tests that put a server under load need both cores.
ALONE := tests/serving/test_load.py tests/serving/test_workers.py
SHARED ?= $(or $(ECOC_SHARED_DATA),../shared/data)

.PHONY: demo test lint docs bench soak audit lock clean setup

demo: $(READY)  ## a world with a known truth, prepared and learnt from, and what policies really earn in it
	"$(BIN)/ecoc" demo --out demo

# Two test workers share the cores: with more threads each they wait for one another, some tests six times as long.
ONE_THREAD := OMP_NUM_THREADS=1

# The recipe, not the prerequisites, sets the order: nothing starts before the Debian packages are there.
test:  ## everything CI runs: Debian packages, .venv, lint, types, import contract, all tests, real data if it is there
	PYTHON="$(PYTHON)" tools/system_packages.sh python3-venv faketime strace chromium
	$(MAKE) --no-print-directory lint
	$(ONE_THREAD) "$(BIN)/pytest" -n 2 -m "not soak" --cov --cov-report= $(COVERED)
	$(ONE_THREAD) "$(BIN)/pytest" -n 2 -m "not soak" $(addprefix --ignore=,$(COVERED) $(ALONE))
	$(ONE_THREAD) "$(BIN)/pytest" -m "not soak" $(ALONE)
	"$(BIN)/python" tools/check_real_data.py "$(SHARED)"
	"$(BIN)/python" tools/check_ope.py "$(SHARED)"
	"$(BIN)/python" tools/audit.py
	@echo "coverage: $$("$(BIN)/coverage" report --format=total) % of the statements in src/ecoc, by the tests of $(COVERED) alone"

lint: $(READY)  ## style, types, import contract, and that the documentation builds
	"$(BIN)/ruff" check .
	"$(BIN)/ruff" format --check .
	"$(BIN)/mypy"
	"$(BIN)/lint-imports" --no-cache
	"$(BIN)/zensical" build --clean --strict

docs: $(READY)  ## the documentation as a site in site/, with API pages made from docstrings
	"$(BIN)/zensical" build --clean --strict

bench: $(READY)  ## speed, as ratios measured in one run
	"$(BIN)/python" benchmarks/prepare.py
	"$(BIN)/python" benchmarks/train.py growth
	"$(BIN)/python" benchmarks/train.py evaluate
	"$(BIN)/python" benchmarks/methods.py layout
	"$(BIN)/python" benchmarks/lists.py
	"$(BIN)/python" benchmarks/open_data.py
	"$(BIN)/python" benchmarks/serve.py

soak: $(READY)  ## checks that take minutes: 100 M events in bounded memory, long fuzzing, load on a server
	"$(BIN)/python" benchmarks/soak_prepare.py
	ECOC_FUZZ_SECONDS=60 "$(BIN)/pytest" tests/reliability
	$(ONE_THREAD) "$(BIN)/pytest" -m soak -s $(ALONE)

audit: $(READY)  ## known vulnerabilities of what is installed
	"$(BIN)/python" tools/audit.py

lock:  ## choose versions anew and write requirements/*.txt with hashes (needs a set-up .venv)
	"$(BIN)/python" tools/lock.py

setup: $(READY)

# torch first and alone, then everything else exactly as locked, then ecoc itself.
$(READY): pyproject.toml constraints.txt requirements/dev.txt
	"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ecoc needs Python 3.11 or newer")'
	"$(PYTHON)" -m venv "$(VENV)"
	"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --requirement requirements/dev.txt
	"$(BIN)/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch "$(READY)"

clean:
	rm -rf "$(VENV)" site demo .cache .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis
