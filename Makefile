# Every target sets up what it needs; `make` alone lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_VENV := .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.installed
# The image that `make images` builds and `make push` pushes.
IMAGE ?= ghcr.io/aibee/ai-scheduler
TAG ?= $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' aischeduler/__init__.py)

.DEFAULT_GOAL := help
.PHONY: help demo test check real bench bench-full soak controlplane docker-engine images push crds chart manifests reference pictures docs lock clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else "Python 3.11, 3.12 or 3.13 is needed, this is " + sys.version.split()[0])'
	@echo "Installing into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP) ## three Pools, twenty nodes and two Jobs on the built-in sandbox, in under a minute
	@$(BIN)/ai-scheduler demo

check: $(STAMP) ## the fast part, in about two minutes: gates, unit tests, scenarios
	@$(BIN)/python -m pytest -q -m "not whole and not real and not soak"

test: $(STAMP) ## everything that everyone runs, the real control plane included
	@$(BIN)/python -m tests

real: $(STAMP) ## only the tests on a real kube-apiserver
	@$(BIN)/python -m pytest -m "real and not soak"

bench: $(STAMP) ## the short set of benchmarks, which print ratios: under ten minutes
	@$(BIN)/python -m tests.bench

bench-full: $(STAMP) ## all benchmarks: about an hour
	@$(BIN)/python -m tests.bench --full

soak: $(STAMP) ## what needs long
	@AI_SCHEDULER_SOAK=1 $(BIN)/python -m pytest -m soak

controlplane: ## build kube-apiserver, etcd, kubectl and the rest into the cache
	@$(PYTHON) tools/controlplane/build.py

crds: ## copy the definitions of aischeduler/crds to manifests/crds and into the chart
	@cp aischeduler/crds/*.yaml manifests/crds/
	@cp aischeduler/crds/*.yaml helm/ai-scheduler/files/

chart: $(STAMP) ## write the chart's schema of `config` and the table of its README
	@$(BIN)/python tools/chart.py write

reference: $(STAMP) ## write the pages of docs/reference from the product and tools/reference
	@$(BIN)/python tools/docs.py write

pictures: $(STAMP) ## draw docs/pictures from four minutes of a scheduler on the sandbox
	@$(PYTHON) tools/controlplane/build.py --only promtool >/dev/null
	@$(BIN)/python tools/pictures.py

$(DOCS_STAMP): requirements-docs.lock
	@$(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

docs: $(DOCS_STAMP) ## build the documentation site into site/
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/python -m mkdocs build --strict

manifests: $(STAMP) crds chart ## write manifests from the chart
	@$(PYTHON) tools/controlplane/build.py --only helm >/dev/null
	@$(BIN)/python tools/chart.py manifests

docker-engine:
	@docker info >/dev/null 2>&1 || { echo "a docker engine is needed, and the docker client reaches none" >&2; exit 1; }
	@docker buildx version >/dev/null 2>&1 || { echo "the buildx plugin of docker is needed, and it is not installed" >&2; exit 1; }

images: docker-engine ## build the image IMAGE:TAG with docker buildx, for this machine's architecture
	@docker buildx build --load --tag $(IMAGE):$(TAG) --build-arg VERSION=$(TAG) \
		--build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) .

push: docker-engine ## push the image IMAGE:TAG to its registry
	@docker push $(IMAGE):$(TAG)

lock: $(STAMP) ## pin the dependencies anew
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --custom-compile-command 'make lock' \
		pyproject.toml --extra gpu -o requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --custom-compile-command 'make lock' \
		pyproject.toml --extra gpu --group dev -c requirements.lock -o requirements-dev.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --custom-compile-command 'make lock' \
		--group build -c requirements-dev.lock -o requirements-build.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --custom-compile-command 'make lock' \
		--group docs -o requirements-docs.lock

clean: ## remove the virtual environment and caches
	@rm -rf $(VENV) $(DOCS_VENV) site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
