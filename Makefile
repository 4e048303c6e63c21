# `make run` for the demo, `make test` for the tests. Nothing but a Python of 3.11 or later is needed beforehand.

VENV ?= .venv
PYTHONS ?= python3.13 python3.12 python3.11 python3
BIN := $(VENV)/bin
CLIENTS := $(VENV)/clients/bin/python
TOOLS := $(VENV)/tools
SITE ?= site

.PHONY: help run serve test wheel coverage lint format docs audit sbom ci docker clean

help: ## What there is
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 10

run: $(VENV)/.installed ## The demo: a scripted upstream, the gateway, a short tour; keeps serving
	$(BIN)/groundlane demo $(ARGS)

serve: $(VENV)/.installed ## The gateway itself, with the settings of the environment
	$(BIN)/groundlane serve $(ARGS)

test: $(VENV)/.installed-dev $(VENV)/.installed-clients ## All tests
	@if [ -x $(CLIENTS) ]; then export GROUNDLANE_TEST_CLIENTS=$(abspath $(CLIENTS)); fi; \
	set -x; $(BIN)/pytest -n auto $(ARGS)

coverage: ARGS += --cov --cov-branch --cov-report=term-missing:skip-covered
coverage: test ## All tests, with the branches that none takes; half as long again

wheel: $(VENV)/.installed-dev ## Build the wheel; test it in a separate environment, beside packages named like ours
	rm -rf $(VENV)/wheel
	$(BIN)/python -m venv $(VENV)/wheel
	$(BIN)/python -m pip --quiet --disable-pip-version-check wheel --no-deps --wheel-dir $(VENV)/wheel/dist .
	$(VENV)/wheel/bin/python -m pip install --quiet --quiet --disable-pip-version-check \
		"$$(echo $(VENV)/wheel/dist/*.whl)[langchain]" pytest
	GROUNDLANE_TEST_WHEEL=$(abspath $(VENV)/wheel/bin/python) $(BIN)/pytest tests/system/wheel $(ARGS)

lint: $(VENV)/.installed-dev ## Style, formatting, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy sdk/src
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev ## Put the sources in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-docs ## The documentation as a site, in site/; fails for a link that leads nowhere
	NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build --strict --site-dir $(SITE)

audit: $(VENV)/.installed $(TOOLS)/.installed ## Known weaknesses of what is installed
	$(BIN)/python -m pip freeze --exclude-editable | $(TOOLS)/bin/pip-audit --disable-pip --no-deps -r /dev/stdin

sbom: $(VENV)/.installed $(TOOLS)/.installed ## What is installed, as CycloneDX, in sbom.json
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o sbom.json $(BIN)/python

ci: ## What a change must pass, from an empty environment
	.ci/run

docker: ## The container image
	docker build -t groundlane .

clean: ## Remove what the above made
	rm -rf $(VENV) site .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build

# Stamps: a second run finds the environment as it is. A change of pyproject.toml installs again.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -e '.[mcp]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(VENV)/.installed $@

# The client libraries under test have an environment of their own, since they want other versions than we do; this
# package stands beside them there, as it would with their users. Without them their tests are skipped, and say so.
$(VENV)/.installed-clients: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m venv $(VENV)/clients && \
		$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["clients"], sep="\n")' \
			> $(VENV)/clients.txt && \
		$(CLIENTS) -m pip install --quiet --quiet --disable-pip-version-check -r $(VENV)/clients.txt -e . && touch $@ || \
		{ rm -rf $(VENV)/clients; echo "SKIPPED: the tests with client libraries, which cannot be installed" >&2; }

# So has what makes the site: nothing of the project is imported by it.
$(VENV)/.installed-docs: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m venv $(VENV)/docs && \
		$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' \
			> $(VENV)/docs.txt && \
		$(VENV)/docs/bin/python -m pip install --quiet --quiet --disable-pip-version-check -r $(VENV)/docs.txt && touch $@

# Tools that look at the environment have one of their own, so as not to be in it.
$(TOOLS)/.installed: | $(BIN)/python
	@$(BIN)/python -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --quiet --disable-pip-version-check pip-audit cyclonedx-bom
	@touch $@

$(BIN)/python:
	@for python in $(PYTHONS); do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "Making $(VENV) with $$($$python --version)"; \
			$$python -m venv $(VENV) || { echo "On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }; \
			exit 0; \
		fi; \
	done; \
	echo "No Python of 3.11 or later found (tried: $(PYTHONS))" >&2; exit 1
