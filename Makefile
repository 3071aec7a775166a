# make help lists what there is. Each target does the set-up it needs.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-random test-docker test-converter lint format doctor report engine image use
.PHONY: bench-client bench-repack compare new-rig
RIG ?= local-llamacpp-cpu-tiny-q4_0
BASE_PYTHON ?= python3
PYTHON := .venv/bin/python
READY := .venv/.ready

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  \1|/p' Makefile | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'
	@echo "Rigs (make -C RIG help):"; ls -d local-* | sed 's/^/  /'

setup: $(READY) ## make .venv and install from the lock file (about a minute)

$(READY): requirements-dev.lock
	@$(BASE_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "Python 3.10 or newer is needed; name one: make setup BASE_PYTHON=python3.12" >&2; exit 1; }
	@echo "set-up: installing Python packages into .venv (about a minute)"
	@$(BASE_PYTHON) -m venv .venv || \
		{ echo "cannot make .venv; on Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(PYTHON) -c "import pathlib, sysconfig; \
		pathlib.Path(sysconfig.get_path('purelib'), 'gemma-rigs.pth').write_text('$(CURDIR)\n')"
	@touch $(READY)

engine: $(READY) ## build llama.cpp for RIG (minutes, once)
	@$(PYTHON) scripts/engine.py $(RIG)

demo: $(READY) ## the whole thing without a GPU: engine, known-answer rig, report (about 10 minutes the first time)
	@echo "demo: builds llama.cpp the first time (about 8 minutes on 2 cores), then measures for half a minute"
	@$(MAKE) --no-print-directory -C local-llamacpp-cpu-tiny-q4_0 speed

test: $(READY) ## run the tests on all cores (builds llama.cpp the first time, then about 3 minutes): PYTEST="-k name"
	@echo "test: the engine comes first (about 8 minutes on 2 cores the first time)"
	@$(PYTHON) scripts/engine.py local-llamacpp-cpu-tiny-q4_0
	@$(PYTHON) -m pytest -n logical $(PYTEST)

test-random: override PYTEST += -p randomly
test-random: test ## the same in random order; it prints the seed: PYTEST="--randomly-seed=N"

test-docker: $(READY) ## run the container tests on a real Docker engine (about 15 minutes the first time)
	@$(PYTHON) -m pytest tests/docker -m docker

image: ## build the container image of RIG (minutes, once)
	@scripts/image.sh $(RIG)

use: ## let plain `docker compose up` serve RIG, or the rig of the card found here
	@scripts/use.sh $(if $(filter file,$(origin RIG)),,$(RIG))

new-rig: $(READY) ## make a rig for another card: SIZE=2b [ENCODING=q4_0] [GPU="NVIDIA L4"]; LIST=1 shows what fits
	@$(PYTHON) scripts/new_rig.py $(if $(SIZE),--size "$$SIZE") $(if $(ENCODING),--encoding "$$ENCODING") \
		$(if $(GPU),--gpu "$$GPU") $(if $(filter 1,$(LIST)),--list)

test-converter: $(READY) ## test the repack with llama.cpp's real converter (installs torch for the CPU the first time)
	@$(PYTHON) -m pytest -m converter

bench-repack: $(READY) ## time the exact repack against llama-quantize (needs 6 GB, a minute)
	@$(PYTHON) scripts/bench_repack.py $(RIG)

lint: $(READY) ## format check, lint, types
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m mypy

format: $(READY) ## format the code
	@$(PYTHON) -m ruff format .
	@$(PYTHON) -m ruff check --fix .

doctor: $(READY) ## say what this host has and lacks for RIG
	@$(PYTHON) scripts/doctor.py $(RIG)

report: $(READY) ## make a report again: RUN=RIG/benchmarks/runs/...
	@test -n "$(RUN)" || { echo "name the run: make report RUN=RIG/benchmarks/runs/..." >&2; exit 2; }
	@$(PYTHON) scripts/report.py $(RUN)

compare: $(READY) ## all rigs' runs on one page, with published figures: RUNS="DIR DIR ..." OUT=DIR
	@$(PYTHON) scripts/compare.py $(RUNS) $(if $(OUT),--out $(OUT))

bench-client: $(READY) ## what the streaming client costs, beside its peers (minutes; PEERS= for none, QUICK=1)
	@$(PYTHON) scripts/bench_client.py $(RIG)
