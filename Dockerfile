# One image per llama.cpp commit and card: the engine, the Python environment and this project.
# scripts/image.sh (make image) calls it with the arguments of a rig's tpu.env; so does compose.yaml.
# A llama.cpp tree can take the place of the pinned source: --build-context llama-src=FOLDER; another
# Debian or Ubuntu that of the base: BASE, with BASE_DIGEST empty. make pin writes the digests.
ARG BASE=docker.io/library/ubuntu:24.04
ARG BASE_DIGEST=sha256:008173c23f95b170204355c12626cb5a965d779a7e1283b09e9cffbb1bf33ca3
ARG BACKEND=cuda
ARG CUDA_VERSION=13.4.1
# Where CUDA is compiled: base, into which CUDA's compiler is brought from the package index; for CUDA
# 12, whose compiler is not there, one of the stages below.
ARG CUDA_DEVEL=base

FROM ${BASE}${BASE_DIGEST:+@}${BASE_DIGEST} AS base
FROM nvidia/cuda:12.8.1-devel-ubuntu24.04@sha256:520292dbb4f755fd360766059e62956e9379485d9e073bbd2f6e3c20c270ed66 AS cuda-12.8.1
FROM nvidia/cuda:12.9.1-devel-ubuntu24.04@sha256:020bc241a628776338f4d4053fed4c38f6f7f3d7eb5919fecb8de313bb8ba47c AS cuda-12.9.1
FROM base AS cpu-devel
FROM ${CUDA_DEVEL} AS cuda-devel

# ---- where things are compiled: nothing of this stays in the image
FROM ${BACKEND}-devel AS devel
# hadolint ignore=DL3008
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates ccache cmake g++ git ninja-build python3 python3-pip && \
    apt-get clean && rm -rf /var/lib/apt/lists/*
WORKDIR /build
# Only what compiling needs, so that other changes to the project do not compile again.
COPY common/__init__.py common/atomic.py common/digest.py common/errors.py common/grammar.py common/index.py \
     common/pip.py common/places.py common/rig.py common/tool_folder.py common/unpack.py common/uv.py common/values.py \
     common/
COPY common/engines/__init__.py common/engines/
COPY common/engines/llamacpp/__init__.py common/engines/llamacpp/build.py common/engines/llamacpp/build_tools.py \
     common/engines/llamacpp/compiling.py common/engines/llamacpp/embedded.py common/engines/llamacpp/jobs.py \
     common/engines/llamacpp/page.py common/engines/llamacpp/source.py common/engines/llamacpp/toolkit.py \
     common/engines/llamacpp/
COPY scripts/image_engine.py scripts/
COPY requirements-cuda-*.lock ./
ARG BACKEND
ARG CUDA_VERSION
ENV GEMMA_RIGS_CACHE=/build/cache PYTHONPATH=/build PYTHONDONTWRITEBYTECODE=1 PIP_BREAK_SYSTEM_PACKAGES=1
RUN --mount=type=secret,id=ca_bundle \
    --mount=type=cache,id=gemma-rigs-pip,target=/root/.cache/pip \
    if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi; \
    python3 scripts/image_engine.py toolkit
ARG LLAMA_CPP_COMMIT=
ARG LLAMA_CPP_REPOSITORY=
ARG LLAMA_CPP_RELEASE=
ARG LLAMA_CPP_RELEASE_SHA256=
ARG CUDA_ARCHITECTURES=
ARG CMAKE_EXTRA=

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
    CMAKE_CUDA_COMPILER_LAUNCHER=ccache CCACHE_DIR=/ccache CCACHE_MAXSIZE=5G \
    CCACHE_COMPILERCHECK=content
RUN --mount=type=bind,from=llama-src,target=/llama.cpp \
    --mount=type=bind,from=page,source=/page,target=/page \
    --mount=type=cache,id=gemma-rigs-ccache,target=/ccache \
    python3 scripts/image_engine.py build /llama.cpp /opt/llama.cpp/bin /page

# ---- the Python environment from the lock file
FROM base AS python
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
FROM base AS runtime
# hadolint ignore=DL3008
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates libgomp1 python3 && \
    apt-get clean && rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --user-group --no-create-home --home-dir /tmp rig && \
    install -d -o rig -g rig /models /kernels
COPY --from=python /opt/venv /opt/venv
COPY --from=build /opt/llama.cpp/bin /opt/llama.cpp/bin
COPY --from=llama-src /LICENSE /opt/llama.cpp/
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
ARG BASE
ARG BASE_DIGEST
ARG BACKEND
ARG LLAMA_CPP_COMMIT=
ARG LLAMA_CPP_RELEASE=
ARG CUDA_VERSION
ARG CUDA_ARCHITECTURES=
LABEL org.opencontainers.image.title="gemma-rigs" \
      org.opencontainers.image.description="llama.cpp's llama-server, of revision or else version, with gemma-rigs" \
      org.opencontainers.image.revision="${LLAMA_CPP_COMMIT}" \
      org.opencontainers.image.version="${LLAMA_CPP_RELEASE}" \
      org.opencontainers.image.licenses="Apache-2.0 AND MIT${CUDA_ARCHITECTURES:+ AND LicenseRef-NVIDIA-CUDA-EULA}" \
      org.opencontainers.image.base.name="${BASE}" \
      org.opencontainers.image.base.digest="${BASE_DIGEST}" \
      gemma-rigs.backend="${BACKEND}" \
      gemma-rigs.cuda="${CUDA_ARCHITECTURES:+${CUDA_VERSION}}" \
      gemma-rigs.cuda.architectures="${CUDA_ARCHITECTURES}"
USER 10001:10001
WORKDIR /opt/gemma-rigs
ENTRYPOINT ["/opt/venv/bin/python", "/opt/gemma-rigs/scripts/entry.py"]
CMD ["--help"]
