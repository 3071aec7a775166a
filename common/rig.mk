# The targets of every rig. A rig's Makefile is one line: include ../common/rig.mk
ROOT := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))/..)
RIG := $(notdir $(CURDIR))
PYTHON := $(ROOT)/.venv/bin/python
READY := $(ROOT)/.venv/.ready
SCRIPT = $(PYTHON) $(ROOT)/scripts

.DEFAULT_GOAL := help
LATER := accuracy identity formats cost builds tune
.PHONY: help show engine draft model pin files doctor serve stop status speed longctx sweep longmixed map report $(LATER)

help: ## this list
	@echo "$(RIG): make TARGET. Settings are in tpu.env; PORT=9000 make serve overrides one."
	@sed -n 's/^\([a-z]*\):.*## /  \1|/p' $(ROOT)/common/rig.mk | awk -F'|' '{printf "%-10s %s\n", $$1, $$2}'

$(READY): $(ROOT)/requirements-dev.lock
	@$(MAKE) --no-print-directory -C $(ROOT) setup

show: $(READY) ## print the llama-server line of this rig
	@$(SCRIPT)/show.py $(RIG)

engine: $(READY) ## build llama.cpp for this rig (minutes, once)
	@$(SCRIPT)/engine.py $(RIG)

draft: $(READY) ## bring the drafter, checked; a broken download goes on where it stopped
	@exec $(SCRIPT)/draft.py $(RIG)

model: $(READY) ## bring the main model, checked; a broken download goes on where it stopped
	@exec $(SCRIPT)/model.py $(RIG)

pin: $(READY) ## write the full SHA-256 and the revision of both files into tpu.env
	@exec $(SCRIPT)/pin.py $(RIG)

files: $(READY) ## list what is in the models folder, verified or not
	@$(SCRIPT)/files.py $(RIG)

doctor: $(READY) ## say what this host has and lacks for this rig
	@$(SCRIPT)/doctor.py $(RIG)

serve: $(READY) ## serve in the foreground, until Ctrl-C or make stop
	@exec $(SCRIPT)/serve.py $(RIG)

stop: $(READY) ## stop this rig's server, from any terminal
	@$(SCRIPT)/stop.py $(RIG)

status: $(READY) ## say whether this rig is served, and what its drafter does
	@$(SCRIPT)/status.py $(RIG)

speed: $(READY) ## what is each draft length worth? QUICK=1 for a look, RESUME=1 to continue
	@exec $(SCRIPT)/speed.py $(RIG)

longctx: $(READY) ## how deep in a long context does the gain reach?
	@exec $(SCRIPT)/longctx.py $(RIG)

sweep: $(READY) ## how many requests at once until the drafter loses? per-slot or shared cache?
	@exec $(SCRIPT)/sweep.py $(RIG)

longmixed: $(READY) ## the same with long, mixed requests
	@exec $(SCRIPT)/longmixed.py $(RIG)

map: $(READY) ## where does the drafter pay, by depth and requests at once? from the runs so far
	@$(SCRIPT)/map.py $(RIG)

report: $(READY) ## make a report again: RUN=benchmarks/runs/...
	@test -n "$(RUN)" || { echo "name the run: make report RUN=benchmarks/runs/..." >&2; exit 2; }
	@$(SCRIPT)/report.py $(RUN)

$(LATER):
	@echo "make $@ is not built yet" >&2; exit 2
