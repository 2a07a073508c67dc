# Every target works from a fresh clone: it sets up .venv first, and only when it must.
BIN := .venv/bin
WORKERS ?= 2
# Debian packages that tests need in CI.
CI_PACKAGES := chromium fonts-dejavu-core rabbitmq-server
# tests/conftest.py does the same for all that the tests start.
PYTEST := env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX="$(CURDIR)/.cache/pyc" $(BIN)/pytest

.DEFAULT_GOAL := help
.PHONY: help run up test test-all check format bench chaos browser docs image compose lock ci clean setup dev

help: ## print this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

run: setup ## set up and run the demonstration
	$(BIN)/quire demo

up: setup ## run Quire on this machine until Ctrl-C
	$(BIN)/quire up

test: check ## check, then every test but the slow ones, on SQLite and PostgreSQL
	$(PYTEST) -n $(WORKERS) --dist worksteal

test-all: check ## check, then every test but the measurements, also on PostgreSQL + Celery + S3
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not bench" --columns all

check: dev ## lint, format, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir .cache/import-linter

format: dev ## rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure the queue, ingestion and the API
	$(BIN)/python -m benchmarks queue
	$(BIN)/python -m benchmarks ingest
	$(BIN)/python -m benchmarks api

chaos: dev ## kill, stall and restart real processes
	$(PYTEST) -m chaos --chaos-files 1000 --columns all

browser: dev ## drive the dashboard in Chromium
	$(PYTEST) -m browser tests/browser

docs: dev ## check that the documents and the code agree
	$(PYTEST) tests/docs

image: dev ## build the container image and try it (needs Docker; PIP_CONF names a pip.conf)
	$(BIN)/python tools/trial.py image

compose: dev ## the same for all containers of `quire deploy compose`, killing some
	$(BIN)/python tools/trial.py compose

lock: ## resolve requirements/*.lock again (needs uv; UPGRADE=1 takes new releases)
	python3 tools/lock.py $(if $(UPGRADE),--upgrade)

ci: ## what CI runs: nothing may be skipped
	sh tools/packages.sh $(CI_PACKAGES)
	QUIRE_REQUIRE_ALL=1 $(MAKE) test

clean: ## remove the environment, caches and scratch files of this checkout
	rm -rf .venv .cache .hypothesis dist build

setup:
	@sh tools/setup.sh run

dev:
	@sh tools/setup.sh dev
