# One image per llama.cpp commit and card: the engine, the Python environment and this project.
# scripts/image.sh (make image) calls it with the arguments of a rig's tpu.env; so does compose.yaml.
# Two stages can be replaced from outside: --build-context llama-src=FOLDER (a llama.cpp tree) and
# --build-context cpu-base=docker-image://NAME (a Debian or Ubuntu without card).
ARG BACKEND=cuda
ARG CUDA_VERSION=13.4.1

FROM ubuntu:24.04 AS cpu-base
FROM cpu-base AS cpu-devel
FROM cpu-base AS cpu-runtime
FROM nvidia/cuda:${CUDA_VERSION}-devel-ubuntu24.04 AS cuda-devel
FROM nvidia/cuda:${CUDA_VERSION}-runtime-ubuntu24.04 AS cuda-runtime

# ---- where things are compiled: nothing of this stays in the image
FROM ${BACKEND}-devel AS devel
# hadolint ignore=DL3008
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates ccache cmake g++ git ninja-build python3 python3-pip && \
    apt-get clean && rm -rf /var/lib/apt/lists/*
WORKDIR /build
# Only what compiling needs, so that other changes to the project do not compile again.
COPY common/__init__.py common/atomic.py common/digest.py common/errors.py common/grammar.py common/index.py \
     common/pip.py common/places.py common/rig.py common/tool_folder.py common/uv.py common/values.py common/
COPY common/engines/__init__.py common/engines/
COPY common/engines/llamacpp/__init__.py common/engines/llamacpp/build.py common/engines/llamacpp/build_tools.py \
     common/engines/llamacpp/embedded.py common/engines/llamacpp/jobs.py common/engines/llamacpp/page.py \
     common/engines/llamacpp/source.py common/engines/llamacpp/
COPY scripts/image_engine.py scripts/
ARG BACKEND
ARG LLAMA_CPP_COMMIT=
ARG LLAMA_CPP_REPOSITORY=
ARG LLAMA_CPP_RELEASE=
ARG LLAMA_CPP_RELEASE_SHA256=
ARG CUDA_VERSION
ARG CUDA_ARCHITECTURES=
ARG CMAKE_EXTRA=
ENV GEMMA_RIGS_CACHE=/build/cache PYTHONPATH=/build PYTHONDONTWRITEBYTECODE=1 PIP_BREAK_SYSTEM_PACKAGES=1

FROM devel AS fetch
RUN --mount=type=secret,id=ca_bundle \
    if [ -s /run/secrets/ca_bundle ]; then \
        export PIP_CERT=/run/secrets/ca_bundle GIT_SSL_CAINFO=/run/secrets/ca_bundle; \
    fi; \
    python3 scripts/image_engine.py fetch /llama.cpp

FROM scratch AS llama-src
COPY --from=fetch /llama.cpp/ /

# Without a network there is none, and the image is built all the same.
FROM devel AS page
COPY requirements-page.lock ./
RUN --mount=type=secret,id=ca_bundle \
    --mount=type=bind,from=llama-src,target=/llama.cpp \
    if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi; \
    python3 scripts/image_engine.py page /llama.cpp /page

FROM devel AS build
ENV CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache \
    CMAKE_CUDA_COMPILER_LAUNCHER=ccache CCACHE_DIR=/ccache CCACHE_MAXSIZE=2G \
    CCACHE_COMPILERCHECK=content
RUN --mount=type=bind,from=llama-src,target=/llama.cpp \
    --mount=type=bind,from=page,source=/page,target=/page \
    --mount=type=cache,id=gemma-rigs-ccache,target=/ccache \
    python3 scripts/image_engine.py build /llama.cpp /opt/llama.cpp/bin /page && ccache --show-stats

# ---- the Python environment from the lock file
FROM ${BACKEND}-runtime AS python
# hadolint ignore=DL3008
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates libgomp1 python3 python3-venv && \
    apt-get clean && rm -rf /var/lib/apt/lists/*
COPY requirements.lock /tmp/requirements.lock
# hadolint ignore=DL3042
RUN --mount=type=secret,id=ca_bundle \
    --mount=type=cache,id=gemma-rigs-pip,target=/root/.cache/pip \
    if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi; \
    python3 -m venv /opt/venv && \
    /opt/venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
        -r /tmp/requirements.lock && \
    /opt/venv/bin/python -m pip uninstall --quiet --yes setuptools && \
    find /opt/venv -type d -name tests -not -path '*/numpy/*' -prune -exec rm -r {} +

# ---- what runs
FROM ${BACKEND}-runtime AS runtime
# hadolint ignore=DL3008
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates libgomp1 python3 && \
    apt-get clean && rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --user-group --no-create-home --home-dir /tmp rig && \
    install -d -o rig -g rig /models /kernels
COPY --from=python /opt/venv /opt/venv
COPY --from=build /opt/llama.cpp/bin /opt/llama.cpp/bin
COPY --from=llama-src /convert_hf_to_gguf.py /opt/llama.cpp/src/
COPY --from=llama-src /conversion /opt/llama.cpp/src/conversion
COPY --from=llama-src /gguf-py /opt/llama.cpp/src/gguf-py
# .dockerignore lets through common, scripts and each rig's tpu.env.
COPY . /opt/gemma-rigs
# A checkout or a source tree made under umask 077 is readable to its owner alone.
RUN find /opt/gemma-rigs /opt/llama.cpp \( -type d ! -perm -555 -o -type f ! -perm -444 \) -exec chmod a+rX {} + && \
    for rig in /opt/gemma-rigs/local-*; do \
        install -d -o rig -g rig "$rig/benchmarks/runs" && chown rig:rig "$rig" "$rig/tpu.env"; \
    done && \
    install -d /run/secrets && \
    echo /opt/gemma-rigs >"$(/opt/venv/bin/python -c \
        'import sysconfig; print(sysconfig.get_path("purelib"))')/gemma-rigs.pth" && \
    /opt/venv/bin/python -m compileall -q /opt/gemma-rigs
# The driver's tools show what the entry point asks for; the kernel cache spares a second compile.
ENV MODELS_DIR=/models CUDA_CACHE_PATH=/kernels GEMMA_RIGS_CACHE=/tmp/gemma-rigs MPLCONFIGDIR=/tmp/matplotlib \
    NUMBA_CACHE_DIR=/tmp/numba \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /opt/gemma-rigs
ENTRYPOINT ["/opt/venv/bin/python", "/opt/gemma-rigs/scripts/entry.py"]
CMD ["--help"]
