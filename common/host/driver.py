"""Driver: whether the NVIDIA driver here can be reached and runs what a CUDA builds, with the fix.

How old a driver may be for a CUDA has two answers, both from NVIDIA's "CUDA Compatibility" (Minor
Version Compatibility; docs.nvidia.com/deploy/cuda-compatibility) and the table "CUDA Toolkit and
Minimum Required Driver Version for CUDA Minor Version Compatibility" of the CUDA release notes:

- Finished kernels (75-real) run from the driver on with which their major version began: MINIMUM.
- Others (61-virtual) are PTX that the driver compiles, and it rejects that of a CUDA newer than its
  own ("the provided PTX was compiled with an unsupported toolchain"). A plain 75 is both.
"""

import ctypes
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pynvml

from common.engines.llamacpp import build
from common.errors import RigError

MINIMUM = {11: "450.80.02", 12: "525.60.13", 13: "580"}
"""the oldest driver on Linux for each major version of CUDA"""
NO_DEVICE = 100
GIVE_A_CARD = (
    "start it with --gpus all, or with --device nvidia.com/gpu=all where the host uses CDI; if it "
    "was, install the NVIDIA Container Toolkit on the host (nvidia-ctk runtime configure "
    "--runtime=docker, then restart Docker)"
)


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver of this host, as far as it says."""

    version: str | None
    """such as 580.95.05"""
    cuda: str | None
    """the newest CUDA it supports, such as 13.0"""

    def __str__(self) -> str:
        version = self.version or "of unknown version"
        return f"{version}, for CUDA up to {self.cuda}" if self.cuda else version


@dataclass(frozen=True)
class Verdict:
    """Whether a driver runs what a CUDA builds."""

    state: Literal["ok", "too old", "unknown"]
    text: str
    fix: str = ""

    def refuse(self) -> str | None:
        """Raise RigError if the driver is too old; returns what to say if nothing is known."""
        if self.state == "too old":
            raise RigError(f"NVIDIA driver {self.text}", fix=self.fix)
        return f"NVIDIA driver {self.text}; {self.fix}" if self.state == "unknown" else None


def judge(driver: Driver, cuda: str | None, architectures: Sequence[str]) -> Verdict:
    """Whether `driver` runs kernels that this CUDA builds for these CUDA_ARCHITECTURES."""
    if cuda is None or (driver.cuda and _numbers(driver.cuda)[:2] >= _numbers(cuda)[:2]):
        return Verdict("ok", str(driver))
    major = _numbers(cuda)[0]
    oldest = MINIMUM.get(major)
    if oldest is None:
        return Verdict(
            "unknown",
            f"{driver}; the oldest one that CUDA {cuda} runs on is not known here",
            "see the table of minimum driver versions in NVIDIA's CUDA release notes",
        )
    if driver.version is None or driver.cuda is None:
        return Verdict("unknown", f"{driver}, does not say all of itself", "see nvidia-smi")
    if _numbers(driver.version) < _numbers(oldest):
        text = f"{driver}, is too old for CUDA {cuda}, which needs {oldest} or newer"
        return Verdict("too old", text, f"update the driver{_older(driver, major)}")
    if not architectures or not all(name.endswith("-virtual") for name in architectures):
        return Verdict("ok", f"{driver}, and finished kernels of every CUDA {major}")
    named = ",".join(architectures)
    return Verdict(
        "too old",
        f"{driver}, cannot compile what CUDA {cuda} leaves it to (CUDA_ARCHITECTURES={named})",
        "set CUDA_ARCHITECTURES to finished kernels, such as 75-real, or update the driver",
    )


def _older(driver: Driver, major: int) -> str:
    """An older CUDA that this project can build, and this driver runs, as another way."""
    known = _numbers(driver.version or "0") >= _numbers(MINIMUM[12])
    if major <= 12 or not known:
        return ""
    return ", or set CUDA_VERSION=12.9.1 and build again in the container"


def of_engine(driver: Driver, info: dict[str, Any]) -> Verdict:
    """The same for an engine that was built, from its engine.json."""
    cuda = info.get("cuda_version")
    known = isinstance(cuda, str) and re.fullmatch(r"\d+(\.\d+)+", cuda)
    return judge(driver, str(cuda) if known else None, kernels(info))


def kernels(info: dict[str, Any]) -> list[str]:
    """The CUDA_ARCHITECTURES of an engine."""
    for flag in info.get("cmake") or []:
        if match := re.fullmatch(r"-DCMAKE_CUDA_ARCHITECTURES=(.*)", flag):
            return [name for name in match[1].split(";") if name]
    return []


def find() -> Driver | None:
    """The driver of this host, or None if NVML does not reach one."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return _read()


def check() -> Driver:
    """The driver of this host. Raises RigError, with the fix, if NVML or CUDA does not reach it.

    A server would go on on the CPU where CUDA does not start, so CUDA itself is asked.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise nvml_error(error.value, str(error)) from None
    code = _cuda()
    if code is None:
        raise _half("libcuda.so.1", "libcuda1")
    if code != 0:
        raise cuda_error(code)
    return _read()


def _read() -> Driver:
    def told(call: Any) -> Any:
        try:
            return call()
        except pynvml.NVMLError:
            return None

    cuda = told(pynvml.nvmlSystemGetCudaDriverVersion)
    version = told(pynvml.nvmlSystemGetDriverVersion)
    return Driver(
        None if version is None else str(version),
        None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
    )


def _cuda() -> int | None:
    """What cuInit gives; None without the library."""
    try:
        return int(ctypes.CDLL("libcuda.so.1").cuInit(0))
    except OSError:
        return None


def _half(library: str, package: str) -> RigError:
    fix = f"install it (on Debian: apt install {package})"
    if _inside():
        fix = "NVIDIA_DRIVER_CAPABILITIES must hold compute and utility"
    return RigError(f"the NVIDIA driver is here without its library {library}", fix=fix)


def nvml_error(code: int, said: str) -> RigError:
    """What is wrong and what to do when NVML does not start."""
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        if _cuda() is not None:
            return _half("libnvidia-ml.so.1", "libnvidia-ml1")
        if _inside():
            return RigError("there is no NVIDIA driver in the container", fix=GIVE_A_CARD)
        return RigError("there is no NVIDIA driver on this host", fix="install the NVIDIA driver")
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return RigError(
            "the NVIDIA driver's kernel module and library have different versions (it was "
            "updated without a restart)",
            fix="restart the host",
        )
    if code == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
        fix = "run nvidia-smi on the host, restart it"
        return RigError("the NVIDIA kernel module is not loaded", fix=fix)
    if code == pynvml.NVML_ERROR_NO_PERMISSION:
        fix = "check /dev/nvidia* on the host"
        return RigError("this user may not use the NVIDIA devices", fix=fix)
    fix = "check nvidia-smi on the host"
    return RigError(f"the NVIDIA driver cannot be used (NVML: {said})", fix=fix)


def cuda_error(code: int) -> RigError:
    """What is wrong and what to do when cuInit returns `code`."""
    if code == NO_DEVICE:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        shown = f" with CUDA_VISIBLE_DEVICES={hidden}" if hidden else ""
        if _inside():
            what = f"the container has the NVIDIA driver, but no card{shown}"
            return RigError(what, fix=GIVE_A_CARD)
        what = f"the NVIDIA driver is here, but CUDA finds no card{shown}"
        return RigError(what, fix="see nvidia-smi -L and dmesg")
    if code == 803:
        return RigError("driver and CUDA library do not match (error 803)", fix="restart the host")
    if code == 804:
        return RigError(
            "the CUDA library is newer than the driver (error 804)",
            fix="update the driver",
        )
    if code == 999:
        return RigError(
            "CUDA does not start (error 999), often after the host slept",
            fix="reload nvidia_uvm or restart the host",
        )
    return RigError(f"CUDA does not start (cuInit gives error {code})", fix="see dmesg")


def _inside() -> bool:
    return build.CONTAINER.is_file()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
