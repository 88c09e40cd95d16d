PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check

# Maths, settings and statistics, in under a minute.
FAST := $(addprefix tests/, test_objectives.py test_ppo.py test_normalize.py test_networks.py \
	test_config.py test_options.py compare theory analysis/test_measures.py runs/test_files.py)

.PHONY: setup demo sample-report test test-fast mutants lint docs bench clean

setup: $(VENV)/.dev

# The core is enough to train; the rest is for tests and lint.
$(VENV)/.core: requirements/core.txt pyproject.toml
	@echo "setting up $(VENV) (about a minute)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "ssedb needs Python 3.11 or newer; name one with make PYTHON=..."; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -r requirements/core.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# pip before 23.1 has a paragraph of complaint for each package without a pyproject.toml otherwise.
$(VENV)/.dev: $(VENV)/.core requirements/dev.txt
	@$(PIP) --use-pep517 -r requirements/dev.txt
	@touch $@

$(VENV)/.docs: $(VENV)/.core requirements/docs.txt
	@$(PIP) -r requirements/docs.txt
	@touch $@

demo: $(VENV)/.core
	$(BIN)/ssedb demo

# Short real runs, and the page made of them. What is trained already is not trained again.
sample-report: setup
	$(BIN)/ssedb sweep experiments/sample.toml --out runs/sample
	test -e runs/sample-breakout/summary.json || $(BIN)/ssedb train --env breakout --noise random-box --preset small --steps 10240 --out runs/sample-breakout
	$(BIN)/ssedb report runs/sample runs/sample-breakout --out report --title "A sample report"

test: setup
	$(BIN)/python -m pytest -n auto --dist loadfile

test-fast: setup
	$(BIN)/python -m pytest -n auto --dist loadfile $(FAST)

# Break the package on purpose, line by line, and see whether a test notices (tests/mutants.toml).
mutants: setup
	$(BIN)/python -m tests.mutate

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python tools/check_links.py
	$(BIN)/python tools/check_scripts.py

# The site, strictly: a broken link or an undocumented public name fails. Open site/index.html.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(VENV)/.core
	$(BIN)/ssedb bench

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
