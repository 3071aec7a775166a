"""Container: what can be wrong inside the image before anything is served or measured."""

import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from common.engines import asking
from common.engines.llamacpp import advice, memory
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.host import card, driver
from common.rig import Rig
from common.weights.gguf_file import UnknownTypeError

SECRETS = Path("/run/secrets")


@dataclass(frozen=True)
class CardFacts:
    """What decides whether an image's engine can run on a card."""

    name: str
    capability: tuple[int, int]
    """compute capability, such as (8, 6)"""
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
        raise RigError(f"{server} does not start: {last}", fix=advice.of(done.stderr) or "")


def check_card(rig: Rig, engine: Engine) -> list[str]:
    """Raise RigError if the rig's card is not here or cannot run this engine; returns warnings."""
    if rig.backend != "cuda":
        return []
    unknown = driver.of_engine(driver.check(), engine.info).refuse()
    present = card.find(rig)
    assert present is not None
    found = facts(present)
    check_kernels(found, engine.info)
    check_memory(found, rig)
    warnings = [unknown] if unknown else []
    if found.desktop:
        warnings.append(
            f"a desktop uses the {found.name}: it takes memory and its drawing shows in the "
            "figures; log out of it, or use the processor's graphics for the screen"
        )
    return warnings


def facts(present: card.Card) -> CardFacts:
    """Read from NVML what `check_kernels` and `check_memory` need."""
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(present.handle)
    return CardFacts(
        present.name,
        (int(major), int(minor)),
        present.memory_mib()[0],
        any(draws for _pid, draws in present.processes()),
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
    names = map(re.compile(r"(\d+)(\d)[af]?(?:-(real|virtual))?").fullmatch, driver.kernels(info))
    return [((int(name[1]), int(name[2])), name[3] or "") for name in names if name]


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
