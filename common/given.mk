# What a user gives, on make's line or in the environment, is text and nothing else: make does not run
# a $(shell ...) in it, and a recipe has it only as "$$NAME", so that no shell reads it either.
GIVEN := RIG RUN RUNS OUT SIZE ENCODING GPU LIST MINUTES UPGRADE CUDA_VERSION BACKEND RUNNER
literal = $(eval override $1 := $$(value $1))$(eval export $1)
$(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(call literal,$(name))))
$(foreach name,$(GIVEN),$(if $(filter environment,$(firstword $(origin $(name)))),$(call literal,$(name))))
# Ours comes first: a package `common` of somebody else's must not be taken for it.
override PYTHONPATH := $(shell cd $(TOP) && pwd)
export PYTHONPATH
