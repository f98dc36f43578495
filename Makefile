# Every target sets up .venv by itself; `make PYTHON=python3.12 test` picks the interpreter.
PYTHON ?= python3
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PY := .venv/bin/python
LOCK := requirements/dev.txt
# Keyed on content and place, not on time: a re-run is instant, a moved or changed tree is set up anew.
MADE := .venv/made-$(shell { cat requirements/uv.txt; pwd; echo '$(PYTHON)'; } | cksum | cut -d' ' -f1)
READY := .venv/ready-$(shell cat $(LOCK) pyproject.toml | cksum | cut -d' ' -f1)
# What the tests of an installation install from: they have no index.
WHEELS := .venv/wheels-$(shell cat requirements/runtime.txt requirements/pipx.txt | cksum | cut -d' ' -f1)
# MCP servers and packages of others that tests talk to; tests that need them are skipped without. The wheel of claude-agent-sdk
# has a program of 350 MB in it; its source has none.
PEERS := .venv/peers-$(shell cat requirements/mcp_peers.* | cksum | cut -d' ' -f1)

# The page of the dashboard, which the API works without: a build that fails stops nothing.
DASHBOARD := .venv/dashboard-$(shell cat tools/dashboard.py dashboard/*.* dashboard/src/* | cksum | cut -d' ' -f1)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help setup peers wheels demo demo-evolve demo-picture check check-format check-lint check-types check-imports check-limits check-deps \
        test test-slow test-browser dashboard conformance bench docs errors-page \
        format lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(READY) $(DASHBOARD) ## make .venv from the lock file; every target below does it by itself

$(MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "mainspring needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1); try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments here: install its venv package (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@echo "setting up .venv"
	@$(PYTHON) -m venv --clear .venv
	@$(PY) -m pip install --quiet --require-hashes --only-binary :all: -r requirements/uv.txt
	@touch $@

# uv takes no settings from pip; where only pip knows the way to the packages, pip installs them. The lock file names every
# package; without --no-deps, older versions of pip ask for a hash of `psycopg[pool]` beside the one of psycopg-pool.
$(READY): $(MADE)
	@rm -f .venv/ready-*
	@$(PY) -m uv pip sync --quiet --require-hashes --python $(PY) $(LOCK) \
	  || $(PY) -m pip install --quiet --require-hashes --no-deps -r $(LOCK)
	@$(PY) -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(DASHBOARD): $(READY)
	@rm -f .venv/dashboard-*
	@$(PY) tools/dashboard.py --optional
	@touch $@

dashboard: $(READY) ## build the dashboard, or say why it cannot be built
	$(PY) tools/dashboard.py

$(PEERS): $(MADE)
	@rm -rf .venv/peers .venv/peers-*
	@$(PYTHON) -m venv .venv/peers/python
	@.venv/peers/python/bin/python -m pip install --quiet --require-hashes --only-binary :all: --no-binary claude-agent-sdk -r requirements/mcp_peers.txt
	@command -v npm >/dev/null || { echo "there is no npm: MCP servers for node are not installed" >&2; exit 0; }; \
	  npm install --silent --no-save --no-package-lock --prefix .venv/peers/node $$(cat requirements/mcp_peers.npm)
	@touch $@

peers: $(PEERS) ## install the MCP servers and packages of others that tests talk to

$(WHEELS): $(READY)
	@rm -rf .venv/wheels-*
	@$(PY) -m pip download --quiet --require-hashes --only-binary :all: --no-deps -r requirements/runtime.txt -d $@.new
	@$(PY) -m pip download --quiet --require-hashes --only-binary :all: --no-deps -r requirements/pipx.txt -d $@.new
	@mv $@.new $@

wheels: $(WHEELS) ## fetch the wheels that the tests of an installation install from

demo: $(READY) ## see Mainspring work, from nothing, in one command
	@$(PY) demo/demo.py

demo-evolve: $(READY) ## see an agent improved, a change refused, and a regression rolled back, offline
	@$(PY) demo/evolve.py

demo-picture: $(READY) ## draw docs/images/demo.svg, the terminal while the demo runs
	@$(PY) tools/demo_picture.py

check: check-format check-lint check-types check-imports check-limits check-deps ## format, lint, types, import direction, sizes, unused dependencies

check-format: $(READY)
	$(PY) -m ruff format --check --diff .

check-lint: $(READY)
	$(PY) -m ruff check --no-cache .

check-types: $(READY)
	$(PY) tools/doc_examples.py
	$(PY) -m pyright

check-imports: $(READY)
	.venv/bin/lint-imports --no-cache

check-limits: $(READY)
	$(PY) tools/limits.py

check-deps: $(READY)
	$(PY) -m deptry src

# Tests start hundreds of processes; none is to compile all of us anew, whatever the shell says.
test test-slow: export PYTHONDONTWRITEBYTECODE :=

# AGAIN="--last-failed -n 0" runs only what failed the last time, one test after the other.
AGAIN :=

# Four at once on two cores: many tests wait for processes, leases and clocks. Each takes the tests of
# whole files, as far as the others leave it any: what a file's tests share is set up once.
# Tests in a browser have a process of their own (`make test-browser`): Playwright's event loop runs as long as they do.
test: $(READY) $(DASHBOARD) ## run the tests, without the slow ones
	$(PY) -m pytest -n 4 --dist worksteal -m "not slow" --ignore tests/browser -o faulthandler_timeout=240 $(AGAIN)

# The properties, which `make test` tries with few examples, are tried with many.
test-slow: $(READY) $(WHEELS) ## run the slow tests and many examples of every property; SLICE=3/24 runs the third of 24 parts
	$(PY) -m pytest -m "slow or hypothesis" --hypothesis-profile thorough $(if $(SLICE),--slice $(SLICE)) $(AGAIN)

# Two at once: each has a browser and a server. Without a browser, and none to install, they are skipped. A test that takes too
# long ends its process: an exception within Playwright's event loop would leave the next test waiting for ever.
test-browser: $(READY) $(DASHBOARD) ## test the dashboard in a browser, which this installs if it can
	MAINSPRING_TEST_BROWSER=$$($(PY) tools/dashboard.py --browser) $(PY) -m pytest -n 2 --dist loadfile -o timeout_method=thread tests/browser $(AGAIN)

conformance: $(READY) $(PEERS) ## run the official conformance suite against the MCP client and the MCP server
	$(PY) -m pytest tests/mcp/test_conformance.py tests/mcp/test_server_conformance.py $(AGAIN)

bench: $(READY) ## measure; prints what it measured
	$(PY) bench/run.py

docs: $(READY) ## build the documentation as a static site in build/site; broken links fail
	$(PY) tools/docs_site.py

errors-page: $(READY) ## write docs/errors.md from the table of errors
	$(PY) tools/errors_page.py

format: $(READY) ## format the code and sort its imports; deletes nothing
	$(PY) -m ruff check --select I --fix-only --quiet .
	$(PY) -m ruff format .

# UPGRADE=--upgrade takes the newest versions; without it, only what pyproject.toml forces moves.
COMPILE = $(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
          --no-emit-index-url --no-header $(UPGRADE)
lock: $(READY) ## write requirements/*.txt anew from pyproject.toml
	$(COMPILE) --all-extras --group dev pyproject.toml -o $(LOCK)
	$(COMPILE) --constraint $(LOCK) --no-annotate pyproject.toml -o requirements/runtime.txt
	$(COMPILE) --constraint $(LOCK) --no-annotate --extra postgres --extra oidc --extra otel pyproject.toml -o deploy/requirements.txt
	printf "hatchling\nnodejs-wheel-binaries\n" | $(COMPILE) --constraint $(LOCK) --no-annotate - -o deploy/build.txt
	echo uv | $(COMPILE) --constraint $(LOCK) --no-annotate - -o requirements/uv.txt
	printf "claude-agent-sdk\nlangchain-core\nmcp>=2.3,<3\nmcp-server-fetch\nmcp-server-git\nmcp-server-time\n" | $(COMPILE) --no-annotate - -o requirements/mcp_peers.txt
	printf "pipx\npip\n" | $(COMPILE) --constraint $(LOCK) --no-annotate - -o requirements/pipx.txt

clean: ## remove .venv and every cache
	rm -rf dashboard/node_modules src/mainspring/edges/dashboard/static
	rm -rf .venv .hypothesis .import_linter_cache .pytest_cache .ruff_cache build dist
	find src tests tools -name __pycache__ -prune -exec rm -rf {} +
