"""Advice: what to do about a server that ended, from the errors in its log."""

import re

# A line of llama.cpp's log: time, level, who says it.
_TOLD = re.compile(r"^\d+\.\d\d\.\d{3}\.\d{3} ([A-Z]) ")
# Begins a part of the log that says nothing about this start: what is tried to see what fits.
_TRIED = "this warning is normal during memory fitting"
_DAMAGED = (
    r"invalid magic|data is not within the file bounds|corrupted or incomplete"
    r"|failed to read|unexpectedly reached end"
)
_DRAFTER_FAILED = "failed to load draft model"
_DRAFTER_DAMAGED = "the drafter's file is damaged: delete it and fetch it again with make draft"
_MODEL_DAMAGED = "the model file is damaged: delete it and fetch it again with make model"
ADVICE = (
    (
        r"must match (the )?target|vocabs are not compatible|doesn't contain MTP layers"
        r"|failed to create MTP context|embedding_length_out",
        "the drafter does not belong to this model: check SPEC_DRAFT_MODEL",
    ),
    (
        r"out of memory|failed to allocate(?!.*pinned)|cudaMalloc failed",
        "not enough memory: lower CTX_SIZE or PARALLEL, or close what else uses the card",
    ),
    (
        r"unknown speculative type",
        "this llama-server does not know this SPEC_TYPE: build the pinned engine with make engine",
    ),
    (
        r"invalid argument|unknown argument",
        "this llama-server is too old for a flag: build the pinned engine with make engine",
    ),
    (_DAMAGED, _MODEL_DAMAGED),
    (
        r"unknown model architecture",
        "this llama-server does not know this model's architecture: build the pinned engine",
    ),
    (
        r"libcuda\.so\.1: cannot open shared object",
        "the NVIDIA driver's library libcuda.so.1 is not here, and this engine does not start "
        "without it: install the driver, or start the container with --gpus all",
    ),
    (
        r"lib(cudart|cublas(Lt)?)\.so\.\d+: cannot open shared object",
        "the CUDA libraries that this engine was linked with are not found: install that CUDA, or "
        "build the engine again with make engine",
    ),
    (
        r"no CUDA-capable device is detected",
        "the NVIDIA driver is here, but CUDA finds no card: see nvidia-smi -L and "
        "CUDA_VISIBLE_DEVICES, and start a container with --gpus all",
    ),
    (
        r"driver version is insufficient|error 804|device kernel image is invalid",
        "the NVIDIA driver is too old for this build's CUDA: update the driver or lower "
        "CUDA_VERSION",
    ),
    (
        r"compiled with an unsupported toolchain",
        "the NVIDIA driver is too old to compile kernels of this build's CUDA: set "
        "CUDA_ARCHITECTURES to the card's finished ones, such as 75-real, or update the driver",
    ),
    (
        r"no kernel image",
        "this build has no kernels for this card: set CUDA_ARCHITECTURES to the card's, such as "
        "75-real, and build again",
    ),
    (
        r"failed to initialize CUDA",
        "CUDA does not start: see nvidia-smi and dmesg, reload nvidia_uvm or restart the host",
    ),
)


def of(log: str) -> str | None:
    """One sentence on the last error of a known kind, or None."""
    lines = errors(log)
    for line in reversed(lines):
        for pattern, sentence in ADVICE:
            if re.search(pattern, line):
                drafter = any(_DRAFTER_FAILED in other for other in lines)
                return _DRAFTER_DAMAGED if drafter and sentence == _MODEL_DAMAGED else sentence
    return None


def errors(log: str) -> list[str]:
    """The lines that tell errors: of that level, or written past the log by a dying program."""
    found = []
    for line in log.splitlines():
        told = _TOLD.match(line)
        if (told is None or told[1] == "E") and _TRIED not in line:
            found.append(line)
    return found
