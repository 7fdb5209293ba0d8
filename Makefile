# Two commands do everything: `make demo` sets up and runs the main job, `make test` sets up and checks.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# What figures and notebooks are drawn from; a sweep that is finished returns at once.
SWEEPS := route_placement selection_rate over_training guidance backbones placement_rule

# Rooms whose tests are fast and need no servers or workers.
QUICK := $(addprefix tests/,config records cost routing diffusion \
  test_draws.py test_readme.py test_mirror.py)

.PHONY: demo test quick figures pictures docs faults lines check setup clean

demo: $(VENV)/.ready
	$(BIN)/tread-lab sweep route_placement.yaml

# Types and lint are checked beside the tests, many of which wait for other processes.
test: setup
	@$(MAKE) --no-print-directory check > $(VENV)/.checked 2>&1 & checks=$$!; \
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder; tests=$$?; \
	wait $$checks || { cat $(VENV)/.checked; exit 1; }; exit $$tests

# The check before a commit: at most 90 seconds on two idle cores.
quick: check
	$(BIN)/python -m pytest --numprocesses 2 -m "not slow" $(QUICK)

figures: setup
	for sweep in $(SWEEPS); do \
	  $(BIN)/tread-lab sweep $$sweep.yaml && $(BIN)/tread-lab figures $$sweep || exit; done
	mkdir -p lab/notebooks && cp analysis/notebooks/*.ipynb lab/notebooks
	$(BIN)/jupyter execute --inplace lab/notebooks/*.ipynb

# What takes long, too: more seeds of properties, clusters of several nodes, Slurm.
faults: setup
	TREAD_LAB_LONG=1 $(BIN)/python -m pytest -m "fault or long" tests
	$(BIN)/python tests/faults/table.py

# Statements of the product by room, share of docstrings, lines of tests and of the page.
lines: setup
	$(BIN)/python benchmarks/lines.py

# The pictures of docs/: pages of the finished lab in Chromium.
pictures: setup
	TREAD_LAB_PICTURES=$${TREAD_LAB_ROOT:-lab} $(BIN)/python -m pytest tests/seeing

# The documentation as a site, in the folder `site`.
docs: setup
	@$(call install,'.[docs]')
	$(BIN)/mkdocs build --strict

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

setup: $(VENV)/.dev

# uv installs what pip would, in half the time. Where it finds nothing, as behind a mirror that pip's
# own settings name, pip does it. Modules are compiled when they are first imported: most never are.
# That has to be kept: else each of the many processes of a sweep compiles Ray and MLflow anew.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
  --constraint constraints.txt
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt
install = { $(PIP) uv && $(UV) --editable $(1); } 2>/dev/null || $(PIP) --editable $(1)

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "tread-lab needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing (torch and friends: about 3 GB to fetch the first time) ..."
	@$(call install,.)
	@touch $@

$(VENV)/.dev: $(VENV)/.ready
	@$(call install,'.[dev]')
	@touch $@

clean:
	rm -rf $(VENV) lab site
