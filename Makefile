# `make run` starts the demo, `make test` runs the tests. The only requirement is Python 3.11 or later.

VENV ?= .venv
PYTHONS ?= python3.13 python3.12 python3.11 python3
BIN := $(VENV)/bin
CLIENTS := $(VENV)/clients/bin/python
AGENTS := $(VENV)/agents/bin/python
TOOLS := $(VENV)/tools
SITE ?= site

.PHONY: help run serve test wheel coverage lint format docs audit sbom ci docker clean

help: ## List the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 10

run: $(VENV)/.installed ## Run the demo: a scripted upstream, the gateway, and a short tour; keeps serving
	$(BIN)/groundlane demo $(ARGS)

serve: $(VENV)/.installed ## Run the gateway with the settings of the environment
	$(BIN)/groundlane serve $(ARGS)

test: $(VENV)/.installed-dev $(VENV)/.installed-clients $(VENV)/.installed-agents ## Run all tests
	@export GROUNDLANE_TEST_CLIENTS=$(abspath $(CLIENTS)):$(abspath $(AGENTS)); \
	set -x; $(BIN)/pytest -n auto $(ARGS)

coverage: ARGS += --cov --cov-branch --cov-report=term-missing:skip-covered
coverage: test ## Run all tests and report branch coverage; takes 50 % longer

wheel: $(VENV)/.installed-dev ## Build the wheels; test them in a separate environment, beside packages named like ours
	rm -rf $(VENV)/wheel
	$(BIN)/python -m venv $(VENV)/wheel
	$(BIN)/python -m pip --quiet --disable-pip-version-check wheel --no-deps --wheel-dir $(VENV)/wheel/dist . ./large-judge
	$(VENV)/wheel/bin/python -m pip install --quiet --quiet --disable-pip-version-check \
		"$$(echo $(VENV)/wheel/dist/groundlane-*.whl)[langchain]" $(VENV)/wheel/dist/groundlane_judge_large-*.whl pytest
	GROUNDLANE_TEST_WHEEL=$(abspath $(VENV)/wheel/bin/python) $(BIN)/pytest tests/system/wheel $(ARGS)

lint: $(VENV)/.installed-dev ## Check style, formatting, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy sdk/src
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev ## Format the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-docs ## Build the documentation in site/; broken links are errors
	NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build --strict --site-dir $(SITE)

audit: $(VENV)/.installed $(TOOLS)/.installed ## Report known vulnerabilities of the dependencies
	$(BIN)/python -m pip freeze --exclude-editable | $(TOOLS)/bin/pip-audit --disable-pip --no-deps -r /dev/stdin

sbom: $(VENV)/.installed $(TOOLS)/.installed ## Write a bill of materials (CycloneDX) to sbom.json
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o sbom.json $(BIN)/python

ci: ## Run the CI checks in a new environment
	.ci/run

docker: ## Build the container image
	docker build -t groundlane .

clean: ## Remove everything that these targets create
	rm -rf $(VENV) site .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build

# Stamp files: the environment is reused until pyproject.toml changes.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -e '.[mcp]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(VENV)/.installed $@

# The client libraries under test need other versions of our dependencies, so they have a separate environment, with
# this package installed as well. If they cannot be installed, their tests are skipped.
$(VENV)/.installed-clients: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m venv $(VENV)/clients && \
		$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["clients"], sep="\n")' \
			> $(VENV)/clients.txt && \
		$(CLIENTS) -m pip install --quiet --quiet --disable-pip-version-check -r $(VENV)/clients.txt -e . && touch $@ || \
		{ rm -rf $(VENV)/clients; echo "SKIPPED: tests with client libraries (they cannot be installed)" >&2; }

# Of the client libraries, some need version 2 of the openai package and some version 3.
$(VENV)/.installed-agents: tests/system/clients/requirements.txt | $(BIN)/python
	@$(BIN)/python -m venv $(VENV)/agents && \
		$(AGENTS) -m pip install --quiet --quiet --disable-pip-version-check -r $< && touch $@ || \
		{ rm -rf $(VENV)/agents; echo "SKIPPED: tests with pydantic-ai, instructor, openai-agents, DSPy and llm (they cannot be installed)" >&2; }

# The documentation tools import nothing of the project and have a separate environment too.
$(VENV)/.installed-docs: pyproject.toml | $(BIN)/python
	@$(BIN)/python -m venv $(VENV)/docs && \
		$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' \
			> $(VENV)/docs.txt && \
		$(VENV)/docs/bin/python -m pip install --quiet --quiet --disable-pip-version-check -r $(VENV)/docs.txt && touch $@

# Tools that inspect the environment are not part of it.
$(TOOLS)/.installed: | $(BIN)/python
	@$(BIN)/python -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --quiet --disable-pip-version-check pip-audit cyclonedx-bom
	@touch $@

$(BIN)/python:
	@for python in $(PYTHONS); do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "Creating $(VENV) with $$($$python --version)"; \
			$$python -m venv $(VENV) || { echo "On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }; \
			exit 0; \
		fi; \
	done; \
	echo "Python 3.11 or later not found (tried: $(PYTHONS))" >&2; exit 1
