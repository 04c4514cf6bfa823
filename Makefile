# PYTHON picks the interpreter, VENV the environment's directory, ARGS goes to pytest.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
VENV ?= .venv
ARGS ?=
SECONDS ?= 600
PORT ?= 8000

BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test test-sqlite test-postgres screenshots storm serve lint format types check-migrations docs clean

help: ## list these tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## order, early approval, killed worker, result: the whole story in a minute
	$(BIN)/python -m testproject.demo

test: test-sqlite test-postgres ## the whole suite, on SQLite and on a PostgreSQL of its own

test-sqlite: $(INSTALLED) ## the whole suite on a SQLite file
	env -u DATABASE_URL $(BIN)/python -m pytest $(ARGS)

test-postgres: $(INSTALLED) ## the whole suite on PostgreSQL: DATABASE_URL's, else one that it starts
	$(BIN)/python -m tests.server -- $(BIN)/python -m pytest $(ARGS)

screenshots: $(INSTALLED) ## pictures of the admin's pages, into docs/images/ (needs Chromium)
	env -u DATABASE_URL $(BIN)/python -m pytest tests/browser/take_screenshots.py

storm: $(INSTALLED) ## faults at random for SECONDS=, then a check of all that they left behind
	$(BIN)/python -m tests.server -- $(BIN)/python -m tests.faults.storm --seconds $(SECONDS)

serve: $(INSTALLED) ## the shop at http://localhost:8000 (PORT=) with a worker, until Ctrl-C
	$(BIN)/python manage.py migrate --verbosity 0
	$(BIN)/python manage.py seed_shop
# Ctrl-C reaches the worker by itself, and a second signal would cut its running steps short.
	@$(BIN)/python manage.py runworkflows & worker=$$!; \
	trap 'interrupted=yes' INT; trap 'kill $$worker; exit 143' TERM; \
	$(BIN)/python manage.py runserver $(PORT); \
	test -n "$$interrupted" || kill $$worker; wait $$worker

lint: $(INSTALLED) ## ruff's rules and formatting, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: $(INSTALLED) ## rewrite the code as ruff wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(INSTALLED) ## mypy, strict for the package
	$(BIN)/mypy

check-migrations: $(INSTALLED) ## fail when a model has no migration, on SQLite and on PostgreSQL
	DATABASE_URL=sqlite://:memory: $(BIN)/python manage.py makemigrations --check --dry-run
	DATABASE_URL=sqlite://:memory: \
		$(BIN)/python manage.py makemigrations --check --dry-run --settings tests.settings
	$(BIN)/python -m tests.server -- \
		$(BIN)/python manage.py makemigrations --check --dry-run --settings tests.settings

docs: $(VENV)/.docs ## the documentation in build/docs; a warning or a broken link is an error
	$(BIN)/sphinx-build --fail-on-warning --keep-going --nitpicky --fresh-env docs build/docs

clean: ## remove the environment, the demo's files and what the tools cached
	rm -rf $(VENV) .demo build/docs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(INSTALLED): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; PYTHON= names it." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(VENV)/.docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@
