"""The entry point of the image: where CUDA cannot start it says so, and goes no further."""

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from common.engines.llamacpp import build
from common.errors import RigError
from common.host import container
from common.rig import ROOT
from scripts import entry
from tests.engines.llamacpp.test_advice import NO_LIBRARY

RIG = "local-llamacpp-1650ti-2b-q4_0"


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """An image for CUDA 13.4.1 whose program does what a line of shell says."""
    program = tmp_path / "llama-server"
    info = {
        "source": {"kind": "release", "version": "1", "origin": "somewhere"},
        "backend": "cuda",
        "cuda_version": "13.4.1",
        "cmake": ["-DCMAKE_CUDA_ARCHITECTURES=75-real"],
    }
    (tmp_path / build.INFO).write_text(json.dumps(info))
    monkeypatch.setattr(build, "CONTAINER", program)
    monkeypatch.chdir(ROOT)

    def does(line: str) -> None:
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)

    does(f"echo '{NO_LIBRARY}' >&2; exit 127")
    return does


def no_library(name: str) -> None:
    raise OSError(name)


def said() -> str:
    with pytest.raises(RigError) as caught:
        entry.ready(RIG)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.usefixtures("image")
def test_a_container_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    monkeypatch.setattr(ctypes, "CDLL", no_library)
    assert said().startswith("there is no NVIDIA driver in the container; start it with --gpus all")


@pytest.mark.usefixtures("image")
def test_a_driver_that_is_too_old_or_without_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [100]
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "550.54.15")
    monkeypatch.setattr(pynvml, "nvmlSystemGetCudaDriverVersion", lambda: 12040)
    monkeypatch.setattr(
        ctypes, "CDLL", lambda _name: SimpleNamespace(cuInit=lambda _flags: codes[-1])
    )
    assert "has the NVIDIA driver, but no card; start it with --gpus all" in said()
    codes.append(0)
    assert "is too old for CUDA 13.4.1, which needs 580 or newer; update" in said()


def test_an_image_whose_cuda_libraries_are_gone(
    image: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "check_card", lambda _rig, _engine: [])
    image(f"echo '{NO_LIBRARY.replace('libcuda.so.1', 'libcublas.so.13')}' >&2; exit 127")
    assert "CUDA libraries that this engine was linked with are not found" in said()
