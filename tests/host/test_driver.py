"""Which driver runs what which CUDA builds, and what is said where CUDA does not start."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from common import rig
from common.engines.llamacpp import build
from common.errors import RigError
from common.host import card, doctor, driver
from common.host.driver import Driver
from common.rig import ROOT, Rig
from common.rigs.cards import CUDA_VERSION
from scripts import _preparing, engine
from tests.helpers import stub_driver
from tests.helpers.stub_driver import Behaviour

NOTHING = Behaviour(nvml=False, libcuda=False)
MIXED = ("61-virtual", "80-virtual")


@pytest.fixture
def card_rig() -> Rig:
    return rig.load(ROOT / "local-llamacpp-1650ti-2b-q4_0", environ={})


@pytest.mark.parametrize(
    ("version", "cuda", "wanted", "names", "state"),
    [
        ("615.78.08", "13.4", "13.4.1", ("75-real",), "ok"),
        ("615.78.08", "13.4", "13.4.1", MIXED, "ok"),
        ("615.78.08", "13.4", "12.8.1", MIXED, "ok"),  # a driver runs all that is older
        ("580.65.06", "13.0", "13.4.1", ("75-real",), "ok"),
        ("580.65.06", "13.0", "13.4.1", ("75-real", "86-real"), "ok"),
        ("580.65.06", "13.0", "13.4.1", MIXED, "too old"),
        ("580.65.06", "13.0", "13.4.1", ("86",), "ok"),  # finished, and PTX besides
        ("580.65.06", "13.0", "13.4.1", ("75-real", "90-virtual"), "ok"),
        ("580.65.06", "13.0", "13.4.1", ("native",), "ok"),
        ("580.65.06", "13.0", "13.4.1", (), "ok"),
        ("575.57.08", "12.9", "13.0.0", ("75-real",), "too old"),
        ("525.60.13", "12.0", "12.9.1", ("61-real",), "ok"),
        ("525.60.11", "12.0", "12.9.1", ("61-real",), "too old"),
        ("520.61.05", "11.8", "12.9.1", ("61-real",), "too old"),
        ("450.80.02", "11.0", "11.8.0", ("61-real",), "ok"),
        ("615.78.08", "13.4", "14.0.1", ("75-real",), "unknown"),
        ("615.78.08", "13.4", "10.2.1", ("75-real",), "ok"),
        ("700.10", "14.1", "14.0.1", MIXED, "ok"),
        (None, "13.0", "13.4.1", ("75-real",), "unknown"),
        ("580.65.06", None, "13.4.1", ("75-real",), "unknown"),
        ("550.54.15", "12.4", None, (), "ok"),  # an engine of unknown build
    ],
)
def test_how_old_a_driver_may_be(
    version: str | None, cuda: str | None, wanted: str | None, names: tuple[str, ...], state: str
) -> None:
    assert driver.judge(Driver(version, cuda), wanted, names).state == state


def test_what_is_said_of_a_driver_that_is_too_old() -> None:
    old = Driver("550.54.15", "12.4")
    with pytest.raises(RigError) as caught:
        driver.judge(old, "13.4.1", ["75-real"]).refuse()
    assert str(caught.value) == (
        "NVIDIA driver 550.54.15, for CUDA up to 12.4, is too old for CUDA 13.4.1, which "
        "needs 580 or newer; update the driver, or set CUDA_VERSION=12.9.1 and build again in the "
        "container"
    )
    newer = Driver("580.65.06", "13.0")
    with pytest.raises(
        RigError, match=r"cannot compile .*=75-virtual,80-virtual\); set CUDA_ARCHITECTURES"
    ):
        driver.judge(newer, CUDA_VERSION, ["75-virtual", "80-virtual"]).refuse()
    unknown = driver.judge(newer, "14.0.1", ["75-real"]).refuse()
    assert "CUDA 14.0.1 runs on is not known here; see" in str(unknown)
    assert driver.judge(newer, CUDA_VERSION, ["75-real"]).refuse() is None


def test_an_engine_says_what_it_was_built_with() -> None:
    info = {
        "cuda_version": "12.9.1",
        "cmake": ["-DX=1", "-DCMAKE_CUDA_ARCHITECTURES=75-virtual;86-virtual"],
    }
    assert driver.kernels(info) == ["75-virtual", "86-virtual"]
    assert driver.of_engine(Driver("525.60.13", "12.0"), info).state == "too old"
    assert driver.of_engine(Driver("575.57.08", "12.9"), info).state == "ok"
    for odd in ({"given_by": "LLAMA_SERVER"}, {"cuda_version": 13}, {"cuda_version": "new"}):
        assert driver.of_engine(Driver("450.80.02", "11.0"), odd).state == "ok"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver in the container; start .*--gpus"),
        (pynvml.NVML_ERROR_UNINITIALIZED, "NVML: Uninitialized"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "restart the host"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "kernel module is not loaded"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "/dev/nvidia"),
        (pynvml.NVML_ERROR_UNKNOWN, "NVML: Unknown Error.*check nvidia-smi"),
    ],
)
def test_nvml_errors_are_named_with_their_fix(
    code: int, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(code)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    monkeypatch.setattr(ctypes, "CDLL", no_library)
    monkeypatch.setattr(build, "CONTAINER", in_a_container(tmp_path))
    with pytest.raises(RigError, match=text):
        driver.check()
    assert driver.find() is None


def no_library(name: str) -> None:
    raise OSError(name)


def in_a_container(folder: Path) -> Path:
    program = folder / "llama-server"
    program.touch()
    return program


def test_cuda_errors_are_named_with_their_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for code, text in ((804, "newer than the driver"), (803, "restart"), (999, "uvm"), (5, "5")):
        assert text in str(driver.cuda_error(code))
    assert "CUDA finds no card; see nvidia-smi -L" in str(driver.cuda_error(100))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-9")
    assert "no card with CUDA_VISIBLE_DEVICES=GPU-9" in str(driver.cuda_error(100))
    monkeypatch.setattr(build, "CONTAINER", in_a_container(tmp_path))
    assert "has the NVIDIA driver, but no card" in str(driver.cuda_error(100))
    assert "--gpus all" in driver.cuda_error(100).fix


ASK = """
from common.errors import RigError
from common.host import card, driver
try:
    print("found", driver.check())
except RigError as error:
    print(error)
print([(one.name, one.processes()) for one in card.cards()] if driver.find() else "no NVML")
"""


@pytest.fixture
def asked(tmp_path: Path) -> Callable[[Behaviour], list[str]]:
    """What our own code says in a process that has such a driver."""

    def ask(behaviour: Behaviour) -> list[str]:
        folder = stub_driver.build(tmp_path / "driver", behaviour)
        surroundings = {**os.environ, **stub_driver.environment(folder), "PYTHONPATH": str(ROOT)}
        line = [sys.executable, "-c", ASK]
        done = subprocess.run(line, env=surroundings, capture_output=True, text=True)
        assert done.stderr == ""
        return done.stdout.splitlines()

    return ask


@pytest.mark.parametrize(
    ("behaviour", "says", "cards"),
    [
        (stub_driver.OLDER_MINOR, "found 580.95.05, for CUDA up to 13.0", "GTX 1650 Ti"),
        (stub_driver.OLDER_CUDA, "found 550.54.15, for CUDA up to 12.4", "GTX 1650 Ti"),
        (stub_driver.NO_DEVICE, "CUDA finds no card", "[]"),
        (stub_driver.NO_NVML, "without its library libnvidia-ml.so.1; install it", "no NVML"),
        (stub_driver.NO_LIBCUDA, "without its library libcuda.so.1; install it", "GTX 1650 Ti"),
        (NOTHING, "there is no NVIDIA driver on this host; install", "no NVML"),
        (Behaviour(cu_init=999), "error 999", "GTX 1650 Ti"),
        (Behaviour(nvml_init=9), "kernel module is not loaded", "no NVML"),
    ],
)
def test_drivers_of_every_kind(
    asked: Callable[[Behaviour], list[str]], behaviour: Behaviour, says: str, cards: str
) -> None:
    """Real libraries, through the real loader and the real nvidia-ml-py."""
    if driver.find() and not (behaviour.nvml and behaviour.libcuda):
        pytest.skip("this host's own driver would be found")
    first, second = asked(behaviour)
    assert says in first
    assert cards in second


def here(monkeypatch: pytest.MonkeyPatch, version: str, cuda: int) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: version)
    monkeypatch.setattr(pynvml, "nvmlSystemGetCudaDriverVersion", lambda: cuda)


Run = Callable[..., tuple[int, str, str]]


def test_a_build_is_not_begun_for_a_driver_that_cannot_run_it(
    card_rig: Rig, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Rig] = []

    def begin(of: Rig, *_: Any) -> None:
        begun.append(of)
        raise RigError("here it would compile")

    monkeypatch.setattr(build, "build", begin)
    here(monkeypatch, "550.54.15", 12040)
    code, _out, err = run(engine.body, card_rig)
    assert (code, begun) == (1, [])
    assert err.count("\n") == 1
    assert f"too old for CUDA {CUDA_VERSION}, which needs 580 or newer; update" in err
    here(monkeypatch, "580.65.06", 13000)
    assert "here it would compile" in run(engine.body, card_rig)[2]
    assert begun


def test_a_host_without_a_driver_may_build_for_another(
    card_rig: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver, "find", lambda: None)
    _preparing.check_driver(card_rig)
    assert (
        "no NVIDIA driver can be reached here; the engine can be built" in capsys.readouterr().out
    )
    monkeypatch.setattr(driver, "find", lambda: Driver("615.78", "13.4"))
    _preparing.check_driver(card_rig.variant({"CUDA_VERSION": "14.0.1"}))
    assert "note: NVIDIA driver 615.78" in capsys.readouterr().out
    _preparing.check_driver(card_rig)
    assert capsys.readouterr().out == ""


def test_the_doctor_judges_a_driver_whose_card_is_another(
    card_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card, "cards", lambda: [])
    monkeypatch.setattr(driver, "find", lambda: Driver("550.54.15", "12.4"))
    found = {check.name: check for check in doctor.examine(card_rig, "docker")}
    assert (found["card"].state, found["driver"].state) == ("lacks", "lacks")
    assert "needs 580 or newer" in found["driver"].text
    later = card_rig.variant({"CUDA_VERSION": "14.0.1"})
    found = {check.name: check for check in doctor.examine(later, "docker")}
    assert found["driver"].state == "note"


@pytest.mark.parametrize("major", sorted(driver.MINIMUM))
def test_the_shell_scripts_refuse_the_same_drivers(major: int, tmp_path: Path) -> None:
    """scripts/cards.sh, before an image is built; CUDA 11 is not built here."""
    smi = tmp_path / "nvidia-smi"
    script = 'fail() { echo "$*"; exit 1; }; . "$1"; check_driver "$2"'
    line = ["sh", "-c", script, "sh", str(ROOT / "scripts" / "cards.sh"), f"{major}.1.0"]
    oldest = driver.MINIMUM[major]
    cases = {oldest: "", f"{oldest}.1": "", "999.1": "", "": "", "449.99": f"needs {oldest} or"}
    for version, said in cases.items():
        smi.write_text(f"#!/bin/sh\necho {version}\n")
        smi.chmod(0o755)
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run(line, env=path, capture_output=True, text=True)
        assert done.stderr == ""
        assert (said in done.stdout) if major > 11 else not done.stdout
        assert done.returncode == int(bool(said) and major > 11)
