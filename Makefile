# The two commands of the README: `make demo` and `make test`. Both create .venv when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The default build of torch carries several gigabytes of GPU libraries. This release has a CPU build
# on common mirrors; set TORCH to any requirement you prefer (TORCH=torch==2.13.0+cu130, say).
TORCH ?= torch==2.13.0
# The versions that were tested; CONSTRAINTS=/dev/null installs the newest instead. torch is not among
# them, so that TORCH decides, and the frameworks' environments have versions of their own.
CONSTRAINTS ?= requirements/constraints.txt
PYTEST_WORKERS ?= auto
# pfl needs Python before 3.13 and a dp-accounting before 0.6, so it has an environment of its own.
PFL_PYTHON ?= $(PYTHON)
PFL_VENV := .venv-pfl
PFL_STAMP := $(PFL_VENV)/.installed
FLOWER_VENV := .venv-flower
FLOWER_STAMP := $(FLOWER_VENV)/.installed
NVFLARE_VENV := .venv-nvflare
NVFLARE_STAMP := $(NVFLARE_VENV)/.installed
MINIMA_VENV := .venv-minima
MINIMA_STAMP := $(MINIMA_VENV)/.installed

.PHONY: demo pictures docs dist constraints format lint types unit clean
.PHONY: test test-long test-adapters test-sandbox test-flower test-nvflare test-pfl test-minima test-release walk mutants

demo: $(STAMP)
	$(BIN)/veilsum demo --out demo-report

# What docs/reports.md shows: the demo's page, as a headless Chromium draws it.
pictures: demo
	$(BIN)/veilsum report demo-report --title "veilsum demo" --screenshots docs/pictures

test: lint types unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/pytest -n $(PYTEST_WORKERS) --dist worksteal --durations=20 -m "not slow"

# Whole campaigns, whole runs, statistical audits with large samples.
test-long: $(STAMP)
	$(BIN)/pytest -n $(PYTEST_WORKERS) --dist worksteal --durations=20 -m slow

# Nothing is fetched, neither here nor by a reader: open build/docs/index.html.
docs: $(STAMP)
	$(BIN)/sphinx-build --fail-on-warning --keep-going --fresh-env --quiet docs build/docs

# The archive and the wheel of this version.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --no-isolation

# Each adapter with its framework, in an environment of its own that is made when it is missing.
test-adapters: test-flower test-nvflare test-pfl test-sandbox

# The lowest versions that pyproject.toml allows, of what the core and the command line need. Typer's
# lowest asks click, as it is today, for names that click deprecates.
test-minima: $(MINIMA_STAMP)
	$(MINIMA_VENV)/bin/python -m pytest -W "ignore:'click:DeprecationWarning" \
		tests/test_ways_in.py::test_all_calls_on_one_ledger_keep_one_promise \
		tests/secagg/oneshot/test_rounds.py::test_a_round_without_losses \
		tests/simulations/commands/test_verbs.py \
		-k "one_ledger or without_losses or list_shows or help_and_version or coins"

$(MINIMA_STAMP): pyproject.toml
	test -x $(MINIMA_VENV)/bin/python || $(PYTHON) -m venv $(MINIMA_VENV)
	$(MINIMA_VENV)/bin/python -c 'import re, tomllib; \
		project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		wanted = project["dependencies"] + project["optional-dependencies"]["cli"]; \
		print(*(re.sub(r">=([^,]+).*", r"==\1", each) for each in wanted), sep="\n")' \
		> $(MINIMA_VENV)/minima.txt
	$(MINIMA_VENV)/bin/python -m pip install --quiet --constraint $(MINIMA_VENV)/minima.txt \
		--editable ".[cli]" "pytest>=8.3" "hypothesis>=6.120"
	$(MINIMA_VENV)/bin/python -m pip check
	touch $(MINIMA_STAMP)

# The wheel in an environment of its own, with everything that it depends on, and the whole demo.
test-release: $(STAMP)
	VEILSUM_TEST_RELEASE="$(TORCH)" $(BIN)/pytest -n0 tests/test_release.py

# The README and the tutorial as somebody follows them who has nothing yet; WALK="--skip 'make test'".
walk: $(STAMP)
	$(BIN)/python tests/doubles/walk.py --torch "$(TORCH)" $(WALK)

# Whether the tests notice the faults of tests/mutants/listed.toml; MUTANTS="--json build/mutants.json".
mutants: $(STAMP)
	$(BIN)/python -m tests.mutants $(MUTANTS)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(STAMP): pyproject.toml veilsum/__init__.py $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) "$(TORCH)"
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable ".[sim,docs,dev]"
	touch $(STAMP)

# Today's versions in place of those in requirements/constraints.txt; run `make test` with them.
constraints:
	rm -rf build/newest
	$(MAKE) VENV=build/newest CONSTRAINTS=/dev/null build/newest/.installed
	{ echo '# Made by `make constraints`: the versions that `make test` runs with, but for torch.'; \
		build/newest/bin/python -m pip freeze --all --exclude-editable --exclude pip --exclude torch \
		| grep -Ev '^(cuda|nvidia|triton)'; } > requirements/constraints.txt

test-pfl: $(PFL_STAMP)
	$(PFL_VENV)/bin/python -m pytest tests/protocol/adapters/test_pfl.py
	$(PFL_VENV)/bin/python examples/pfl/digits.py

# One call of pip, so that it looks for versions that suit both pfl and this project.
$(PFL_STAMP): pyproject.toml
	$(PFL_PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 13) and \
		"pfl needs Python 3.11 or 3.12: make test-pfl PFL_PYTHON=python3.12")'
	test -x $(PFL_VENV)/bin/python || $(PFL_PYTHON) -m venv $(PFL_VENV)
	$(PFL_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(PFL_VENV)/bin/python -m pip install --quiet \
		"$(TORCH)" --editable ".[pfl]" "scikit-learn>=1.5" "pytest>=8.3" "hypothesis>=6.120"
	$(PFL_VENV)/bin/python -m pip check
	touch $(PFL_STAMP)

# The sandbox of a site's apps, on a systemd in a namespace: root, on a machine that has one; else skipped.
test-sandbox: $(FLOWER_STAMP)
	VEILSUM_SANDBOX=1 $(FLOWER_VENV)/bin/python -m pytest -rs \
		tests/protocol/adapters/flower/test_sandbox.py

# Simulations need ray, which flwr brings with its own extra. The tutorial converts a PyTorch app: Flower
# 1.24 was the last that had one to write in its own package.
test-flower: $(FLOWER_STAMP)
	$(FLOWER_VENV)/bin/python -m pytest tests/protocol/adapters/flower \
		tests/simulations/bench/test_flower.py
	$(FLOWER_VENV)/bin/python -m pytest tests/test_documentation.py -k flower_tutorial

$(FLOWER_STAMP): pyproject.toml
	test -x $(FLOWER_VENV)/bin/python || $(PYTHON) -m venv $(FLOWER_VENV)
	$(FLOWER_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(FLOWER_VENV)/bin/python -m pip install --quiet \
		"$(TORCH)" --editable ".[cli,flower]" "flwr[simulation]>=1.41,<2" "scikit-learn>=1.5" \
		"pytest>=8.3" "hypothesis>=6.120" "pyyaml>=6.0"
	$(FLOWER_VENV)/bin/python -m pip check
	$(FLOWER_VENV)/bin/python -m pip download --quiet --no-deps \
		--dest $(FLOWER_VENV)/flwr-new "flwr==1.24.0"
	touch $(FLOWER_STAMP)

# Its test runs the example in NVFlare's simulator.
test-nvflare: $(NVFLARE_STAMP)
	$(NVFLARE_VENV)/bin/python -m pytest \
		tests/protocol/adapters/test_nvflare.py tests/protocol/adapters/test_nvflare_one_shot.py \
		tests/protocol/adapters/test_nvflare_evaluation.py

$(NVFLARE_STAMP): pyproject.toml
	test -x $(NVFLARE_VENV)/bin/python || $(PYTHON) -m venv $(NVFLARE_VENV)
	$(NVFLARE_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(NVFLARE_VENV)/bin/python -m pip install --quiet \
		--editable ".[nvflare]" "scikit-learn>=1.5" "pytest>=8.3" "hypothesis>=6.120"
	$(NVFLARE_VENV)/bin/python -m pip check
	touch $(NVFLARE_STAMP)

clean:
	rm -rf $(VENV) $(FLOWER_VENV) $(NVFLARE_VENV) $(PFL_VENV) $(MINIMA_VENV) demo-report build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
