# make help lists what there is. Each target does the set-up it needs.
.DEFAULT_GOAL := help
.PHONY: help setup runtime dev lock lists demo test test-random test-docker test-docker-cuda test-browser test-converter lint format doctor
.PHONY: report compose engine image use pin
.PHONY: bench-client bench-repack compare first-runs fuzz image-check new-rig
override TOP := .
include common/given.mk
RIG ?= local-llamacpp-cpu-tiny-q4_0
PYTHON := .venv/bin/python
export RIG PYTHON
# The tests wait a third of their time, for servers and signals.
override PARALLEL_TESTS := -n "$${WORKERS:-$$(( $$(nproc) * 3 / 2 ))}"
# One lock for every Python from 3.10 on. Versions in the output file stay unless UPGRADE=1.
override LOCK := uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.10 \
	$(if $(filter 1,$(UPGRADE)),--upgrade)

# What compiling and linking an engine needs of NVIDIA's toolkit, and what looks into its machine code.
override CUDA_PARTS := cuda-toolkit[nvcc,cudart,cublas,cccl,crt,nvvm,cuobjdump]
override CUDA_LOCKS = $(patsubst requirements-cuda-%.lock,%,$(wildcard requirements-cuda-*.lock))

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  \1|/p' Makefile | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'
	@echo "Rigs (make -C RIG help):"; ls -d local-* | sed 's/^/  /'

# Both say nothing and take no time where .venv is as the lock file says.
runtime: # what every rig needs
	@"$${BASE_PYTHON:-python3}" scripts/setup.py runtime

dev: # and what tests and lint need
	@"$${BASE_PYTHON:-python3}" scripts/setup.py dev

setup: dev ## make .venv and install from the lock file (half a minute)

lock: ## make the lock files anew from pyproject.toml (needs uv; UPGRADE=1 for newer versions; CUDA_VERSION=13.5.0 for one more)
	@$(LOCK) pyproject.toml --output-file requirements.lock
	@$(LOCK) --extra dev pyproject.toml --output-file requirements-dev.lock
	@$(LOCK) --group build --output-file requirements-build.lock
	@$(LOCK) --group embedded --output-file requirements-embedded.lock
	@$(LOCK) --group page --output-file requirements-page.lock
	@$(LOCK) --group uv --output-file requirements-uv.lock
	@for version in $(if $(CUDA_VERSION),"$$CUDA_VERSION",$(CUDA_LOCKS)); do echo "$(CUDA_PARTS)==$$version" | \
		$(LOCK) - --output-file "requirements-cuda-$$version.lock" || exit; done

lists: runtime ## make scripts/lists anew: what make and the shell scripts know of verbs and settings
	@"$$PYTHON" scripts/lists.py

compose: runtime ## make the rigs' services in compose.yaml anew from each tpu.env
	@"$$PYTHON" scripts/compose.py

engine: runtime ## fetch or build llama.cpp for RIG, as its ENGINE says (once)
	@"$$PYTHON" scripts/engine.py "$$RIG"

demo: ## the whole thing without a GPU: engine, known-answer rig, report (half a minute the first time; two on an old machine)
	@echo "demo: sets up Python packages, fetches the engine (34 MB) and measures:" \
		"half a minute the first time, up to two on an old machine"
	@$(MAKE) --no-print-directory -C local-llamacpp-cpu-tiny-q4_0 speed

override ORDER :=
export ORDER
test: dev ## run the tests on all cores (about 5 minutes); PYTEST="-k name" for some of them
	@"$$PYTHON" scripts/engine.py local-llamacpp-cpu-tiny-q4_0
	@PYTEST_ADDOPTS="$$PYTEST $$ORDER" "$$PYTHON" -m pytest $(PARALLEL_TESTS)

test-random: override ORDER := -p randomly
test-random: test ## the same in random order; it prints the seed: PYTEST="--randomly-seed=N"

fuzz: dev ## damaged files and settings by the thousand: FUZZ=20000 of each kind, FUZZ_SEED=7 for others
	@FUZZ="$${FUZZ:-20000}" PYTEST_ADDOPTS="$$PYTEST" "$$PYTHON" -m pytest $(PARALLEL_TESTS) tests/fuzz

test-browser: dev ## test llama.cpp's page for chatting, and REPORT.html, in Chromium (apt install chromium chromium-driver)
	@"$$PYTHON" scripts/engine.py local-llamacpp-cpu-tiny-q4_0
	@PYTEST_ADDOPTS="$$PYTEST" "$$PYTHON" -m pytest tests/browser -m browser

test-docker: dev ## run the container tests on a real Docker engine (about 15 minutes the first time)
	@"$$PYTHON" -m pytest tests/docker -m docker

test-docker-cuda: dev ## build the true images for two kinds of card, look into them and start them without one (an hour the first time)
	@"$$PYTHON" -m pytest tests/docker -m docker_cuda -s

image: ## build the container image of RIG (minutes, once; half an hour for a card)
	@scripts/image.sh "$$RIG"

image-check: runtime ## build the image of RIG, look into it and write a run directory: sizes, machine code (half an hour the first time)
	@"$$PYTHON" scripts/image_check.py "$$RIG"

pin: runtime ## ask the registries for the digests of the base images, and write them into the Dockerfile
	@"$$PYTHON" scripts/pin_bases.py

use: ## let plain `docker compose up` serve RIG, or the rig of the card found here
	@scripts/use.sh $(if $(filter file,$(origin RIG)),,"$$RIG")

new-rig: runtime ## make a rig for another card: SIZE=2b (or tiny, the known-answer pair) [ENCODING=q4_0] [GPU="NVIDIA L4"]; LIST=1 shows what fits
	@"$$PYTHON" scripts/new_rig.py $(if $(SIZE),--size "$$SIZE") $(if $(ENCODING),--encoding "$$ENCODING") \
		$(if $(GPU),--gpu "$$GPU") $(if $(filter 1,$(LIST)),--list)

first-runs: runtime ## measure the card of this host for MINUTES=30, and pack up what to carry home [GPU="NVIDIA L4"]
	@exec "$$PYTHON" scripts/first_runs.py $(if $(MINUTES),--minutes "$$MINUTES") $(if $(GPU),--gpu "$$GPU")

test-converter: dev ## test the repack with llama.cpp's real converter (installs torch for the CPU the first time)
	@"$$PYTHON" -m pytest -m converter

bench-repack: runtime ## time the exact repack against llama-quantize (needs 6 GB, a minute)
	@"$$PYTHON" scripts/bench_repack.py "$$RIG"

lint: dev ## format check, lint, types
	@"$$PYTHON" -m ruff format --check .
	@"$$PYTHON" -m ruff check .
	@"$$PYTHON" -m mypy
	@.venv/bin/lint-imports --no-cache --no-logo

format: dev ## format the code
	@"$$PYTHON" -m ruff format .
	@"$$PYTHON" -m ruff check --fix .

doctor: runtime ## say what this host has and lacks for RIG
	@"$$PYTHON" scripts/doctor.py "$$RIG"

report: runtime ## make a report again: RUN=RIG/benchmarks/runs/...
	@test -n "$$RUN" || { echo "name the run: make report RUN=RIG/benchmarks/runs/..." >&2; exit 2; }
	@"$$PYTHON" scripts/report.py "$$RUN"

compare: runtime ## all rigs' runs on one page, with published figures: RUNS="DIR DIR ..." OUT=DIR
	@"$$PYTHON" scripts/compare.py $(if $(RUNS),--runs "$$RUNS") $(if $(OUT),--out "$$OUT")

bench-client: runtime ## what the streaming client costs, beside its peers (minutes; PEERS= for none, QUICK=1)
	@"$$PYTHON" scripts/bench_client.py "$$RIG"
