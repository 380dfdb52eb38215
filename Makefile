.DEFAULT_GOAL := help
.PHONY: help setup demo test faults fresh check fix bench clean docs page site
PY := .venv/bin/python
STAMP := .venv/.installed
PAGE := serve_apps/browser/built/index.html
# Tests start hundreds of processes, and each would compile all sources again.
export PYTHONDONTWRITEBYTECODE=
# Processes that share the tests, file by file, on two cores: while one waits for Ray, the others compute. More of them want more cores.
WORKERS := 3
# After this time in one test a process prints its threads and ends; seconds. Longer than the longest row may take.
ROW_S_MAX := 1000
# What fresh examples and worlds are made from: make prints it, so that they can be had again.
SEED ?= $(shell $(PY) -c 'import random; print(random.randrange(2**32))')

help: ## This list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /  make \1\t/' | expand -t 16

setup: $(STAMP) ## Make .venv with everything at the versions of constraints.txt; does nothing when it is up to date

demo: $(STAMP) ## Start a small federation here, run a workflow on it, show what happened, stop it
	.venv/bin/schedulemesh demo $(ARGS)

test: $(STAMP) ## All tests but the slow faults, with real Redis and real Ray, by three processes; WORKERS=0: by one
	$(PY) -m pytest -m "not slow" -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0

faults: $(STAMP) ## Kill, freeze, cut off, fill up: every row of the fault plan, and a stack stopped again and again; minutes; see docs/faults.md
	$(PY) -m pytest -q -m faults -o faulthandler_timeout=$(ROW_S_MAX) tests

fresh: $(STAMP) ## Laws and worlds with new random examples, from a seed that make prints; SEED=7: from that one
	$(PY) -m pytest --hypothesis-profile fresh --hypothesis-seed $(SEED) -n $(WORKERS) tests/property tests/simulation

check: $(STAMP) ## Linter, formatter, types, layers
	$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy && $(PY) -m pytest -q tests/test_architecture.py

fix: $(STAMP) ## Put right what the linter and the formatter can
	$(PY) -m ruff check --fix . ; $(PY) -m ruff format .

docs: $(STAMP) ## Write docs/configuration.md, docs/states.md and docs/codes.md anew from the code
	$(PY) -m serve_apps.configuration_docs docs/configuration.md
	$(PY) -m serve_apps.states_docs docs/states.md
	$(PY) -m serve_apps.codes.pages docs/codes.md

site: $(STAMP) ## Build the documentation as a site, with search, into site/
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

page: $(STAMP) ## Build the browser page anew from ui/; a running root shows it after a restart
	$(PY) ui/build_backend.py

bench: $(STAMP) ## Measure; see benchmarks/README.md
	$(PY) -m benchmarks

clean: ## Remove .venv, caches and build folders; state folders (.schedulemesh) stay
	rm -rf .venv ui/node_modules serve_apps/browser/built build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis && find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@if command -v uv >/dev/null; then uv venv --quiet --allow-existing --python '>=3.10,<3.14' .venv; else python3 -c 'import sys; sys.exit(None if sys.version_info >= (3, 10) else "Python 3.10 or newer is needed, as python3 on PATH")' && python3 -m venv .venv; fi
	@if command -v uv >/dev/null; then uv pip install --quiet --compile-bytecode --python $(PY) -c constraints.txt -e '.[dev,examples]'; else $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,examples]'; fi
	@test -f $(PAGE) || echo 'The browser page is missing, since it could not be built; everything else works. `make page` tries again and says why.'
	@touch $@
