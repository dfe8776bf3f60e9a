# The two commands of the README: `make demo` and `make test`. Both create .venv when it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The default build of torch carries several gigabytes of GPU libraries. This release has a CPU build
# on common mirrors; set TORCH to any requirement you prefer (TORCH=torch==2.13.0+cu130, say).
TORCH ?= torch==2.13.0
PYTEST_WORKERS ?= auto

.PHONY: demo test lint types unit format clean

demo: $(STAMP)
	$(BIN)/veilsum demo --out demo-report

test: lint types unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/pytest -n $(PYTEST_WORKERS)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[sim,dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) demo-report build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
