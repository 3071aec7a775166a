# The targets of every rig. A rig's Makefile is one line: include ../common/rig.mk
# Called in a rig's folder (make -C), so nothing depends on the characters of the project's path.
override TOP := ..
include ../common/given.mk
# The folder decides, whatever is given.
override RIG := $(shell basename "$$PWD")
PYTHON := ../.venv/bin/python
export RIG PYTHON
override READY := runtime
override SCRIPT = "$$PYTHON" ../scripts
# Where targets run: in the rig's image, or on this host. A rig with a card needs only make and Docker.
ifndef RUNNER
ifndef BACKEND
BACKEND := $(shell sh ../scripts/setting.sh . BACKEND 2>&1)
ifneq ($(.SHELLSTATUS),0)
$(error $(BACKEND))
endif
endif
RUNNER := $(if $(filter cuda,$(BACKEND)),docker,host)
endif
ifeq ($(RUNNER),docker)
override READY :=
override SCRIPT = ../scripts/in_docker.sh ../scripts
else ifneq ($(RUNNER),host)
$(error RUNNER=$(RUNNER): expected docker or host)
endif
export RUNNER

.DEFAULT_GOAL := help
# The measurements, and in `help` what each answers: made from common/kinds (make lists).
override KINDS := $(shell sed -n 's/^\([a-z]*\)|measure|.*/\1/p' ../scripts/lists)
.PHONY: help runtime show engine image draft model pin files repack doctor serve stop status $(KINDS) \
	tune map rescore report mcp

help: ## this list
	@echo "$$RIG: make TARGET. Settings are in tpu.env; PORT=9000 make serve overrides one."
	@{ sed -n 's/^\([a-z]*\):.*## /  \1|/p' ../common/rig.mk; \
		sed -n 's/^\([a-z]*\)|measure|[^|]*|/  \1|/p' ../scripts/lists; } | \
		awk -F'|' '{name = $$1; sub(/^[^|]*[|]/, ""); printf "%-11s %s\n", name, $$0}'

runtime: # says nothing and takes no time where .venv is as the lock file says
	@"$${BASE_PYTHON:-python3}" ../scripts/setup.py runtime

show: $(READY) ## print the llama-server line of this rig
	@$(SCRIPT)/show.py "$$RIG"

engine: $(READY) ## fetch or build llama.cpp for this rig, as ENGINE says (once)
	@$(SCRIPT)/engine.py "$$RIG"

image: ## build this rig's container image (minutes, once); RUNNER=docker runs every target in it
	@../scripts/image.sh "$$RIG"

draft: $(READY) ## bring the drafter, checked; a broken download goes on where it stopped
	@exec $(SCRIPT)/fetch.py "$$RIG" draft

model: $(READY) ## bring the main model, checked; a broken download goes on where it stopped
	@exec $(SCRIPT)/fetch.py "$$RIG" model

pin: $(READY) ## write into tpu.env: full SHA-256 and revision of both files, llama.cpp's full commit
	@exec $(SCRIPT)/pin.py "$$RIG"

files: $(READY) ## list what is in the models folder, verified or not
	@$(SCRIPT)/files.py "$$RIG"

doctor: $(READY) ## say what this host has and lacks for this rig
	@$(SCRIPT)/doctor.py "$$RIG"

serve: $(READY) ## serve in the foreground, until Ctrl-C or make stop
	@exec $(SCRIPT)/serve.py "$$RIG"

stop: $(READY) ## stop this rig's server, from any terminal
	@$(SCRIPT)/stop.py "$$RIG"

status: $(READY) ## say whether this rig is served, and what its drafter does
	@$(SCRIPT)/status.py "$$RIG"

repack: $(READY) ## make the drafter of Google's checkpoint: exact Q4_0, Q8_0 and bf16
	@exec $(SCRIPT)/repack.py "$$RIG"

$(KINDS): $(READY)
	@exec $(SCRIPT)/measure.py "$$RIG" $@

tune: $(READY) ## find the best setting: TUNE_FOR=chat|documents|many; APPLY=1 writes it into tpu.env
	@exec $(SCRIPT)/tune.py "$$RIG"

map: $(READY) ## where does the drafter pay, by depth and requests at once? from the runs so far
	@$(SCRIPT)/map.py "$$RIG"

rescore: $(READY) ## score the stored replies of an accuracy run anew: RUN=benchmarks/runs/...
	@test -n "$$RUN" || { echo "name the run: make rescore RUN=benchmarks/runs/..." >&2; exit 2; }
	@$(SCRIPT)/rescore.py "$$RUN"

report: $(READY) ## make a report again: RUN=benchmarks/runs/...
	@test -n "$$RUN" || { echo "name the run: make report RUN=benchmarks/runs/..." >&2; exit 2; }
	@$(SCRIPT)/report.py "$$RUN"

mcp: $(READY) ## let an MCP client drive this rig: writes its entry into the project's .mcp.json
	@$(if $(READY),"$$PYTHON","$${BASE_PYTHON:-python3}") ../scripts/register.py "$$RIG"
