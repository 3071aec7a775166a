# The image of `make builds`: the rig's own image, and beside its engine the other build's, each with
# its CUDA libraries. Nothing is compiled. scripts/image.sh calls it.
ARG RIG_IMAGE
ARG OTHER_IMAGE

FROM ${OTHER_IMAGE} AS other

FROM ${RIG_IMAGE}
COPY --from=other /opt/llama.cpp/bin /opt/llama.cpp/other
