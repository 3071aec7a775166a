# The image of `make builds`: the rig's own image, and beside its engine the other build's, with the
# CUDA libraries that one was linked with. Nothing is compiled. scripts/in_docker.sh calls it.
ARG RIG_IMAGE
ARG OTHER_IMAGE

FROM ${OTHER_IMAGE} AS other
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# libcuda.so is the driver's, and comes from the host when the container runs.
RUN cp -r /opt/llama.cpp/bin /tmp/other && mkdir /tmp/other/lib && \
    ldd /tmp/other/llama-server | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | \
    { grep -E '/lib(cudart|cublas|cublasLt|nccl)\.so' || true; } | xargs -r cp -L -t /tmp/other/lib

FROM ${RIG_IMAGE}
COPY --from=other /tmp/other /opt/llama.cpp/other
