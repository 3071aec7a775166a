"""Container: what can be wrong inside the image before anything is served or measured."""

import ctypes
import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from common.engines import asking
from common.engines.llamacpp import memory
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.host import card
from common.rig import Rig
from common.weights.gguf_file import UnknownTypeError

SECRETS = Path("/run/secrets")
NO_RUNTIME = (
    "the container was given no NVIDIA card. Install the NVIDIA Container Toolkit on the host "
    "(nvidia-ctk runtime configure --runtime=docker, then restart Docker) and start it with "
    "--gpus all, or with --device nvidia.com/gpu=all where the host uses CDI"
)


@dataclass(frozen=True)
class CardFacts:
    """What decides whether an image's engine can run on a card."""

    name: str
    capability: tuple[int, int]
    """compute capability, such as (8, 6)"""
    cuda: tuple[int, int]
    """the newest CUDA the driver supports"""
    driver: str
    free_mib: float
    desktop: bool
    """whether something draws on a screen with it"""


def read_secrets() -> None:
    """Take the optional secrets compose hands over into this process's environment.

    The first line of `api_key` becomes LLAMA_API_KEY, which llama-server and our own requests
    read, `hf_token` HF_TOKEN; `ca_bundle` is trusted by every client here. Empty files count as
    absent. Raises RigError if one is there and cannot be read.
    """
    if keys := asking.keys(_secret("api_key")):
        os.environ[asking.KEY] = ",".join(keys)
    if token := _secret("hf_token"):
        os.environ["HF_TOKEN"] = token
    if _secret("ca_bundle"):
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT"):
            os.environ[name] = str(SECRETS / "ca_bundle")


def _secret(name: str) -> str:
    path = SECRETS / name
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise RigError(
            f"the secret {name} cannot be read by user {os.getuid()} of the container ({error}); "
            "give its file on the host read permission for others, or leave it out"
        ) from None


def check_program(server: Path) -> None:
    """Raise RigError if llama-server does not start at all on this machine."""
    done = subprocess.run([str(server), "--version"], capture_output=True, text=True)
    if done.returncode == -signal.SIGILL:
        raise RigError(
            "this image was compiled for a newer processor than this host's; "
            "build it here: make image"
        )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise RigError(f"{server} does not start: {last}")


def check_card(rig: Rig, engine: Engine) -> list[str]:
    """Raise RigError if the rig's card is not here or cannot run this engine; returns warnings."""
    if rig.backend != "cuda":
        return []
    check_driver()
    present = card.find(rig)
    assert present is not None
    found = facts(present)
    check_cuda(found, engine.info)
    check_kernels(found, engine.info)
    check_memory(found, rig)
    if found.desktop:
        return [
            f"a desktop uses the {found.name}: it takes memory and its drawing shows in the "
            "figures; log out of it, or use the processor's graphics for the screen"
        ]
    return []


def check_driver() -> None:
    """Raise RigError, with the fix, if NVML or CUDA cannot reach the driver from here."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise RigError(driver_advice(error)) from None
    # A container newer than its driver: NVML is fine, CUDA is not, and the engine would go on on
    # the CPU. So ask CUDA itself.
    try:
        code = int(ctypes.CDLL("libcuda.so.1").cuInit(0))
    except OSError:
        raise RigError(
            "libcuda.so.1 is missing although the driver is there; "
            "NVIDIA_DRIVER_CAPABILITIES must hold compute and utility"
        ) from None
    if code != 0:
        raise RigError(cuda_advice(code))


def driver_advice(error: pynvml.NVMLError) -> str:
    """What to do about an NVML error, in one sentence."""
    if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return NO_RUNTIME
    if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return (
            "the driver's kernel module and library have different versions (the driver was "
            "updated without a restart): restart the host"
        )
    if error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
        return "the NVIDIA kernel module is not loaded on the host: run nvidia-smi there, restart"
    if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
        return "this user may not use the NVIDIA devices: check /dev/nvidia* on the host"
    return f"the NVIDIA driver cannot be used (NVML: {error}); check nvidia-smi on the host"


def cuda_advice(code: int) -> str:
    """What to do when cuInit returns `code`."""
    known = {
        100: NO_RUNTIME,
        803: "driver and CUDA library do not match (error 803): restart the host",
        804: "the image's CUDA is newer than the driver (error 804): update the driver, or set "
        "CUDA_VERSION to one it supports and build again",
        999: "CUDA does not start (error 999), often after the host slept: reload nvidia_uvm or "
        "restart the host",
    }
    return known.get(code, f"CUDA does not start: cuInit gives error {code}")


def facts(present: card.Card) -> CardFacts:
    """Read from NVML what `check_cuda`, `check_kernels` and `check_memory` need."""
    cuda = int(pynvml.nvmlSystemGetCudaDriverVersion())
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(present.handle)
    return CardFacts(
        present.name,
        (int(major), int(minor)),
        (cuda // 1000, cuda % 1000 // 10),
        str(pynvml.nvmlSystemGetDriverVersion()),
        present.memory_mib()[0],
        any(draws for _pid, draws in present.processes()),
    )


def check_cuda(card: CardFacts, info: dict[str, Any]) -> None:
    """Raise RigError if the driver is older than the CUDA the engine was built with.

    Within one major version an older driver runs finished kernels (…-real) but compiles none.
    Source: NVIDIA's CUDA compatibility guide, minor version compatibility.
    """
    wanted = info.get("cuda_version")
    match = re.match(r"(\d+)\.(\d+)", wanted or "")
    if match is None:
        return
    built = (int(match[1]), int(match[2]))
    if card.cuda >= built:
        return
    if card.cuda[0] == built[0] and has_real_kernels(card.capability, architectures(info)):
        return
    raise RigError(
        f"driver {card.driver} supports CUDA {card.cuda[0]}.{card.cuda[1]}, this engine was built "
        f"with {wanted}: get a newer driver, or set CUDA_VERSION to one it supports and build again"
    )


def check_kernels(card: CardFacts, info: dict[str, Any]) -> None:
    """Raise RigError if no kernel of the engine can run on the card."""
    built = architectures(info)
    if not built or has_real_kernels(card.capability, built):
        return
    if any(kind != "real" and number <= card.capability for number, kind in built):
        return
    number = f"{card.capability[0]}{card.capability[1]}"
    flags = ", ".join(f"{a}{b}{'-' if kind else ''}{kind}" for (a, b), kind in built)
    raise RigError(
        f"the engine holds kernels for {flags}, none of which runs on the {card.name} "
        f"({card.capability[0]}.{card.capability[1]}): set CUDA_ARCHITECTURES={number}-real and "
        "build again"
    )


def architectures(info: dict[str, Any]) -> list[tuple[tuple[int, int], str]]:
    """CUDA architectures of an engine: ((8, 6), "real"); the kind may be real, virtual or ""."""
    for flag in info.get("cmake") or []:
        if match := re.fullmatch(r"-DCMAKE_CUDA_ARCHITECTURES=(.*)", flag):
            found = re.findall(r"(\d+)(\d)[af]?(?:-(real|virtual))?(?:;|$)", match[1])
            return [((int(major), int(minor)), kind) for major, minor, kind in found]
    return []


def has_real_kernels(capability: tuple[int, int], built: list[tuple[tuple[int, int], str]]) -> bool:
    """Whether finished kernels run on the card: same major version, not a newer minor one."""
    return any(
        kind != "virtual" and number[0] == capability[0] and number[1] <= capability[1]
        for number, kind in built
    )


def check_memory(card: CardFacts, rig: Rig) -> None:
    """Raise RigError if the rig's files and cache do not fit the card's free memory."""
    try:
        need = memory.need_mib(rig)
    except UnknownTypeError:
        return  # llama.cpp may read it all the same, and says itself what does not fit
    if need is not None and need > card.free_mib:
        raise RigError(
            f"the {card.name} has {card.free_mib:.0f} MiB free, this rig needs about {need:.0f}: "
            "close what else uses the card (nvidia-smi lists it), or lower CTX_SIZE"
        )
