"""Advice comes from errors, the last first, and a healthy log gives none."""

from pathlib import Path

import pytest

from common.engines.llamacpp import advice
from common.engines.llamacpp.build import Engine
from common.rig import Rig
from common.serving.process import Server

STAMP = "0.00.033.488"
ORDINARY = (
    f"{STAMP} I llama_model_loader: - kv  12: gemma4-assistant.embedding_length_out u32 = 256\n"
)
NO_MEMORY = (
    f"{STAMP} E ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory"
)
# What the loader says of an engine compiled for CUDA where there is no driver.
NO_LIBRARY = (
    "llama-server: error while loading shared libraries: libcuda.so.1: "
    "cannot open shared object file: No such file or directory"
)
# What llama-server for CUDA 13.4.1 logs where CUDA does not start; it then serves on the CPU.
FAILED = "0.00.004.656 E ggml_cuda_init: failed to initialize CUDA: "
NO_CARD = f"{FAILED}no CUDA-capable device is detected"
OLD_DRIVER = f"{FAILED}CUDA driver version is insufficient for CUDA runtime version"
UNKNOWN = f"{FAILED}unknown error"


@pytest.mark.engine
@pytest.mark.parametrize("measuring", [True, False])
def test_a_healthy_start_gives_none(
    tiny: Rig, real_engine: Engine, tmp_path: Path, measuring: bool
) -> None:
    with Server(tiny, real_engine, tmp_path / "log", measuring) as server:
        log = server.log_text()
    assert "gemma4-assistant.embedding_length_out" in log  # what took every death for its own
    assert "speculative" in log
    assert advice.of(log) is None


@pytest.mark.parametrize(
    "line",
    [
        ORDINARY,
        f"{STAMP} I llama_model_loader: - kv   3: general.name str = out of memory",
        f"{STAMP} W common_fit_params: failed to allocate, trying less: out of memory",
        f"{STAMP} D load: unknown argument",
        f"{STAMP} E ggml_cuda_host_malloc: failed to allocate 4 MiB of pinned memory: none",
        f"{STAMP} E operator(): out of memory (this warning is normal during memory fitting)",
    ],
)
def test_what_is_no_error_gives_none(line: str) -> None:
    assert advice.of(line) is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (NO_LIBRARY, "libcuda.so.1 is not here"),
        (NO_LIBRARY.replace("libcuda.so.1", "libcublasLt.so.13"), "CUDA libraries that"),
        (NO_CARD, "CUDA finds no card"),
        (OLD_DRIVER, "too old for this build's CUDA"),
        (UNKNOWN, "CUDA does not start"),
        ("the provided PTX was compiled with an unsupported toolchain.", "finished ones"),
    ],
)
def test_cuda_that_does_not_start(line: str, words: str) -> None:
    """The log goes on for long after it: the server does not end of it."""
    warning = "warning: no usable GPU found, --gpu-layers option will be ignored\n"
    assert words in str(advice.of(f"{line}\n{warning}{ORDINARY}"))


def test_an_error_after_the_ordinary_line() -> None:
    assert "not enough memory" in str(advice.of(f"{ORDINARY}{NO_MEMORY}\n"))


def test_the_last_error_is_the_reason() -> None:
    wrong = f"{STAMP} E llama_model_load: vocabs are not compatible\n"
    assert "not enough memory" in str(advice.of(f"{wrong}{NO_MEMORY}\n"))
    assert "does not belong" in str(advice.of(f"{NO_MEMORY}\n{wrong}"))


def test_a_damaged_drafter_is_told_from_a_damaged_model() -> None:
    damaged = f"{STAMP} E gguf_init_from_file: failed to read tensor data\n"
    drafter = f"{STAMP} E srv load_model: failed to load draft model, 'd.gguf'\n"
    assert "make model" in str(advice.of(damaged))
    assert "make draft" in str(advice.of(damaged + drafter))


def test_past_the_log_too() -> None:
    """A program that dies, or does not know a flag, writes without time and level."""
    assert "too old for a flag" in str(advice.of("error: unknown argument: --new\n"))
    assert "no kernels for this card" in str(
        advice.of("CUDA error: no kernel image is available\n")
    )
