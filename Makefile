# Every target works in a fresh clone: it creates or updates .venv first, if needed.
BIN := .venv/bin
# More than the cores: many tests wait for processes, leases and timeouts.
WORKERS ?= 3
# Debian packages that the tests need in CI.
CI_PACKAGES := chromium fonts-dejavu-core rabbitmq-server
# tests/conftest.py does the same for the processes that tests start.
PYTEST := env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX="$(CURDIR)/.cache/pyc" $(BIN)/pytest

.DEFAULT_GOAL := help
.PHONY: help run up quick test test-all check format bench chaos neighbours mutants fuzz schema browser docs image compose audit sbom lock ci clean setup dev

help: ## print this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

run: setup ## set up and run the demonstration
	$(BIN)/quire demo

up: setup ## run Quire on this machine until Ctrl-C
	$(BIN)/quire up

quick: check ## check, then unit and store tests on SQLite: under two minutes
	$(PYTEST) -q -n $(WORKERS) --dist worksteal tests/unit tests/store -k "not postgres"

test: check ## check, then every test that a change could break, on SQLite and PostgreSQL
	$(PYTEST) -n $(WORKERS) --dist worksteal

test-all: check ## the same, and every integration test on PostgreSQL + Celery + S3
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not bench" --columns all

check: dev ## lint, format, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir .cache/import-linter

format: dev ## rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: dev ## run the benchmarks of queue, ingestion and API (QUICK=1: small sizes, rough figures)
	$(PYTEST) -q -m bench tests/bench
	$(BIN)/python -m benchmarks queue $(if $(QUICK),--quick)
	$(BIN)/python -m benchmarks ingest $(if $(QUICK),--quick)
	$(BIN)/python -m benchmarks api $(if $(QUICK),--quick)

chaos: dev ## kill, stall, stop and restart: five minutes at the fast rate on each column
	$(PYTEST) -m chaos --chaos-seconds 300 --chaos-pause 0.5 --chaos-files 1000 --columns all

neighbours: dev ## measure how long a tenant waits while another one does its worst
	$(PYTEST) -q -s -m chaos tests/chaos/test_neighbours.py

mutants: dev ## remove one guard at a time, and check that a test notices
	$(BIN)/python tools/mutants.py --workers $(WORKERS)

fuzz: dev ## feed changed files and bodies to parsers and API for ten minutes
	$(BIN)/python -m tests.fuzz.command --seconds 600

schema: dev ## ask each route 200 times for what its OpenAPI document allows, and for what it does not
	SCHEMA_EXAMPLES=200 $(PYTEST) -q tests/api/test_schema.py

browser: dev ## drive the dashboard in Chromium
	$(PYTEST) -m browser tests/browser

docs: dev ## regenerate parts of the docs and check that docs and code agree
	$(BIN)/python tools/docs.py
	$(PYTEST) tests/docs

image: dev ## build and test the container image (needs Docker; PIP_CONF names a pip.conf)
	$(BIN)/python tools/container_tests.py image

compose: dev ## test the containers of `quire deploy compose`, killing some (needs Docker)
	$(BIN)/python tools/container_tests.py compose

audit: .cache/audit/.stamp ## look for known vulnerabilities in the locked packages (needs an advisory service)
	.cache/audit/bin/pip-audit --strict --no-deps --disable-pip -r requirements/base.lock
	.cache/audit/bin/pip-audit --strict --no-deps --disable-pip -r requirements/image.txt

sbom: .cache/audit/.stamp ## write dist/sbom.json: the packages of the image, with hashes, as CycloneDX
	mkdir -p dist
	.cache/audit/bin/cyclonedx-py requirements requirements/image.txt --pyproject pyproject.toml \
		--output-reproducible --output-file dist/sbom.json

.cache/audit/.stamp: requirements/audit.lock
	python3 -m venv --clear .cache/audit
	.cache/audit/bin/python -m pip install --quiet --require-hashes --only-binary :all: -r requirements/audit.lock
	touch $@

lock: ## resolve requirements/*.lock (needs uv; UPGRADE=1 upgrades)
	python3 tools/lock.py $(if $(UPGRADE),--upgrade)

ci: ## what CI runs: `make test`, with a skipped test counted as a failure
	sh tools/debian_packages.sh $(CI_PACKAGES)
	QUIRE_REQUIRE_ALL=1 $(MAKE) test

clean: ## remove .venv, caches and build files of this checkout
	rm -rf .venv .cache .hypothesis dist build

setup:
	@sh tools/setup.sh run

dev:
	@sh tools/setup.sh dev
