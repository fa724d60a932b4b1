# Every target makes what it needs. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
PYTHONPATH :=
export PYTHONPATH
# Each process of a test would compile all its modules again.
unexport PYTHONDONTWRITEBYTECODE

# Each target that writes results (docs/*.json) makes the page of them at its end: docs/measured.md.
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

demo: run-venv ## a real Kafka, a real hang: found, named and resolved (ARGS=--keep leaves it running)
	@$(BIN)/txnwatch demo $(ARGS)

# tests/conftest.py says which worker has which tests.
test: dev-venv ## every test a contributor needs, one summary
	@$(BIN)/python -m pytest -n 4 $(ARGS)

unit: dev-venv ## unit and property tests and the simulation: no JVM, no network
	@$(BIN)/python -m pytest tests/unit tests/property tests/simulation $(ARGS)

# The tests that have more examples if TXNWATCH_SEEDS is higher (tests/support/seeds.py).
RANDOM_EXAMPLES := tests/unit tests/property tests/simulation tests/integration/test_producer_state_oracle.py tests/integration/test_live_differential.py

# Without the dump of pytest's faulthandler after half an hour: it can crash a Python that is running.
nightly: dev-venv ## the simulation at length: a hundred thousand seeds (SEEDS=N)
	@TXNWATCH_SEEDS=$(or $(SEEDS),100000) $(BIN)/python -m pytest -o faulthandler_timeout=0 tests/simulation/test_simulation.py tests/simulation/test_asking.py tests/simulation/test_mutants.py $(ARGS)

it: dev-venv ## integration tests: a real Kafka and a real Redis
	@$(BIN)/python -m pytest tests/integration tests/contract $(ARGS)

e2e: dev-venv ## end-to-end tests: the whole job
	@$(BIN)/python -m pytest tests/e2e $(ARGS)

browser: browser-venv ## the page in a real browser; writes docs/page.png and docs/page-incident.png
	@$(BIN)/python -m pytest tests/browser -m "" --page-pictures docs $(ARGS)

long: dev-venv ## what takes long and is not in `make test`: whole processes under rarer faults, and more random examples
	@$(BIN)/python -m pytest tests -m long --ways-results docs/ways-in.json $(ARGS)
	@TXNWATCH_SEEDS=600 TXNWATCH_FIRST_SEED=0 $(BIN)/python -m pytest -n 2 $(RANDOM_EXAMPLES) $(ARGS)
	@$(BIN)/python scripts/generate_docs.py

stop-times: dev-venv ## how long a stop takes in each situation; writes docs/stop-times.json
	@rm -f docs/stop-times.json
	@$(BIN)/python -m pytest tests/e2e/test_stopping*.py tests/e2e/test_abort_processes.py -m "" -k "stopping or stop_while" --stop-results docs/stop-times.json $(ARGS)
	@$(BIN)/python scripts/generate_docs.py

takeover-times: dev-venv ## how long nobody speaks after a fault of the speaker; writes docs/takeover-times.json
	@rm -f docs/takeover-times.json
	@$(BIN)/python -m pytest tests/e2e/test_takeover_times.py -m "" --takeover-results docs/takeover-times.json $(ARGS)
	@$(BIN)/python scripts/generate_docs.py

cluster-times: dev-venv ## how long detection and a takeover take on a Spark cluster; writes docs/cluster-times.json
	@rm -f docs/cluster-times.json
	@$(BIN)/python -m pytest tests/e2e/test_spark_cluster.py -m "" -k nothing_is_lost --cluster-results docs/cluster-times.json $(ARGS)
	@$(BIN)/python scripts/generate_docs.py

bad-inputs: dev-venv ## what is said about each bad input; writes docs/bad-inputs.json
	@rm -f docs/bad-inputs.json
	@$(BIN)/python -m pytest -m "" --bad-input-results docs/bad-inputs.json $(ARGS)
	@$(BIN)/python scripts/generate_docs.py

audit-proofs: dev-venv ## each check of the audit on real brokers of four versions; writes tests/audit-proofs.json
	@$(BIN)/python -m pytest tests/integration/test_audit*.py -m "" --audit-results tests/audit-proofs.json $(ARGS)
	@$(BIN)/python scripts/generate_docs.py

faults: dev-venv ## every fault on real brokers of four versions, beside the other tools; writes docs/faults.json and docs/disturbances.json
	@$(BIN)/python -m pytest tests/faults -m "" --fault-results docs/faults.json $(ARGS)
	@$(BIN)/python scripts/generate_docs.py

soak: bench-venv ## an hour of healthy applications, restarts and hangs; writes docs/soak.json (ARGS="--minutes 10")
	@PYTHONPATH=tests $(BIN)/python -m soak $(ARGS); code=$$?; $(BIN)/python scripts/generate_docs.py && exit $$code

fuzz: fuzz-venv ## the decoders with inputs that reach ever more branches, an hour; writes docs/fuzz.json (ARGS="event")
	@PYTHONPATH=tests $(BIN)/python -m fuzz $(ARGS); code=$$?; $(BIN)/python scripts/generate_docs.py && exit $$code

lint: dev-venv ## formatting and lint rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: dev-venv ## types and the import contracts, checked on what both wheels ship
	@rm -rf build src/txnwatch_demo/build
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target build/pkg . ./src/txnwatch_demo
	@MYPYPATH=build/pkg $(BIN)/mypy -p txnwatch -p txnwatch_demo
	@PYTHONPATH=build/pkg $(BIN)/lint-imports
	@rm -rf src/txnwatch_demo/build

bench: bench-venv ## ratios against what a user would use instead; writes docs/benchmarks.json (ARGS="scan idle": some of it)
	@PYTHONPATH=tests $(BIN)/python -m bench $(ARGS)
	@$(BIN)/python scripts/generate_docs.py

docs: dev-venv ## the tables of the pages, from code and from results; the links to the glossary
	@$(BIN)/python scripts/generate_docs.py

manifests: dev-venv ## the plain manifests of deploy/k8s, from the Helm chart
	@PYTHONPATH=tests $(BIN)/python scripts/manifests.py

lock: dev-venv ## the lock files of the image (ARGS=--upgrade: the newest versions)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'
	@PATH=$(BIN):$$PATH $(BIN)/python scripts/lock.py $(ARGS)

site: dev-venv ## the documentation site, in build/site; a broken link or anchor is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open build/site/index.html"

ci: lint types test ## all that CI runs

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE ?= txnwatch
PYTHON ?= python3

# Without the virtual environment: a release needs only Python and git.
wheels: ## wheels, source distributions, checksums, bill of materials and notes of a release, in dist (TAG=v1.2.3: it must fit)
	@rm -rf dist && mkdir dist
	@$(PYTHON) scripts/release_notes.py $(if $(TAG),--tag $(TAG)) > dist/notes.md
	@$(PYTHON) scripts/dists.py dist > /dev/null
	@$(PYTHON) scripts/sbom.py > dist/txnwatch-$(VERSION).cdx.json
	@cd dist && sha256sum *.whl *.tar.gz *.cdx.json > SHA256SUMS && ls

image: ## the image of this version (IMAGE=host/name; needs a Docker daemon)
	@docker build --file deploy/Dockerfile --tag $(IMAGE):$(VERSION) .

clean: ## removes what the other targets made, but not the download cache
	rm -rf .venv build src/txnwatch_demo/build dist *.egg-info src/txnwatch_demo/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

run-venv:
	@scripts/venv.sh run

dev-venv:
	@scripts/venv.sh dev

bench-venv: dev-venv
	@scripts/venv.sh bench

fuzz-venv: dev-venv
	@scripts/venv.sh fuzz

browser-venv: dev-venv
	@scripts/venv.sh browser

.PHONY: help demo test unit nightly it e2e long stop-times takeover-times cluster-times bad-inputs faults soak fuzz lint types bench docs site manifests lock ci wheels image clean run-venv dev-venv bench-venv fuzz-venv browser browser-venv
