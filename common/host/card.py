"""Card: what NVML says of the card, telemetry beside a measurement, and cool-down."""

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from common.errors import RigError
from common.rig import Rig

HERTZ = 5.0
COOL_MARGIN_C = 2
COOL_LIMIT_S = 300.0
# Reasons that change the speed. Idle and settings the user made are no throttling.
THROTTLES = {
    pynvml.nvmlClocksThrottleReasonSwPowerCap: "power limit",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "software thermal",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "hardware thermal",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
}


@dataclass(frozen=True)
class Sample:
    """One reading of the card. MHz, degrees C, watts, MiB, percent; None where it gives none."""

    clock_mhz: int | None
    memory_clock_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    memory_mib: float
    utilization_pct: int | None
    throttles: tuple[str, ...]


class Card:
    """One NVIDIA card, through NVML."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.name = str(pynvml.nvmlDeviceGetName(handle))
        uuid = _try(pynvml.nvmlDeviceGetUUID, handle)
        self.uuid = None if uuid is None else str(uuid)

    def sample(self) -> Sample:
        mask = _try(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, self.handle) or 0
        power = _try(pynvml.nvmlDeviceGetPowerUsage, self.handle)
        utilization = _try(pynvml.nvmlDeviceGetUtilizationRates, self.handle)
        return Sample(
            _try(pynvml.nvmlDeviceGetClockInfo, self.handle, pynvml.NVML_CLOCK_SM),
            _try(pynvml.nvmlDeviceGetClockInfo, self.handle, pynvml.NVML_CLOCK_MEM),
            _try(pynvml.nvmlDeviceGetTemperature, self.handle, pynvml.NVML_TEMPERATURE_GPU),
            None if power is None else power / 1000,
            pynvml.nvmlDeviceGetMemoryInfo(self.handle).used / 2**20,
            None if utilization is None else utilization.gpu,
            tuple(name for bit, name in THROTTLES.items() if mask & bit),
        )

    def memory_mib(self) -> tuple[float, float]:
        """Free and total card memory in MiB."""
        memory = pynvml.nvmlDeviceGetMemoryInfo(self.handle)
        return memory.free / 2**20, memory.total / 2**20

    def processes(self) -> list[tuple[int, bool]]:
        """Process ids that use the card, each with whether it draws on a screen."""
        compute = _try(pynvml.nvmlDeviceGetComputeRunningProcesses, self.handle) or []
        graphics = _try(pynvml.nvmlDeviceGetGraphicsRunningProcesses, self.handle) or []
        return [(p.pid, False) for p in compute] + [(p.pid, True) for p in graphics]

    def describe(self) -> dict[str, Any]:
        """What identifies the card, for the manifest."""
        limit = _try(pynvml.nvmlDeviceGetEnforcedPowerLimit, self.handle)
        cuda = _try(pynvml.nvmlSystemGetCudaDriverVersion)
        return {
            "name": self.name,
            "driver": _try(pynvml.nvmlSystemGetDriverVersion),
            "cuda": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            "memory_mib": round(self.memory_mib()[1]),
            "power_limit_w": None if limit is None else limit / 1000,
            "vbios": _try(pynvml.nvmlDeviceGetVbiosVersion, self.handle),
            "compute_capability": _try(pynvml.nvmlDeviceGetCudaComputeCapability, self.handle),
        }


def _try(call: Callable[..., Any], *arguments: Any) -> Any:
    """The value, or None where this card or driver does not give it."""
    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None


def cards() -> list[Card]:
    """Every card of this host. Raises RigError with NVML's reason if there is no driver."""
    try:
        pynvml.nvmlInit()
        return [
            Card(pynvml.nvmlDeviceGetHandleByIndex(index))
            for index in range(pynvml.nvmlDeviceGetCount())
        ]
    except pynvml.NVMLError as error:
        raise RigError(f"no NVIDIA card can be used on this host (NVML: {error})") from None


def find(rig: Rig) -> Card | None:
    """The rig's card; None for a CPU rig. Of several the first, or the one that
    CUDA_VISIBLE_DEVICES names. Raises RigError in one sentence if it is not here."""
    if rig.backend == "cpu":
        return None
    wanted = (rig.gpu_name or "").replace("_", " ").lower()
    advice = "run it on the host with that card, or try make demo here"
    try:
        present = cards()
    except RigError as error:
        raise RigError(
            f"{rig.name} is for the card {rig.gpu_name}, but {error}; {advice}."
        ) from None
    seen = visible(present, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    for card in seen:
        if f" {wanted} " in f" {card.name.lower()} ":  # whole words: an L40S is no L4
            return card
    names = ", ".join(card.name for card in seen) or "none"
    if seen != present:
        names += f" (CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']})"
    raise RigError(
        f"{rig.name} is for the card {rig.gpu_name}, but this host has: {names}; {advice}."
    )


def visible(present: list[Card], given: str) -> list[Card]:
    """The cards that CUDA_VISIBLE_DEVICES lets CUDA see, by number or by how the UUID begins."""
    if not given:
        return present
    found = []
    for part in given.split(","):
        for number, card in enumerate(present):
            by_uuid = part.startswith("GPU-") and (card.uuid or "").startswith(part)
            if part == str(number) or by_uuid:
                found.append(card)
    return found


class Telemetry:
    """Readings of the card at 5 Hz into a file, one line each. Without a card it does nothing."""

    def __init__(self, card: Card | None, file: Path) -> None:
        self.card = card
        self.file = file
        self.seen: list[tuple[float, Sample]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def __enter__(self) -> "Telemetry":
        if self.card is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self.card is not None:
            self._thread.join()

    def during(self, start: float, end: float) -> list[Sample]:
        """Samples between two `time.time()` values."""
        return [sample for when, sample in self.seen if start <= when <= end]

    def _run(self) -> None:
        assert self.card is not None
        with self.file.open("a") as file:
            while not self._stop.wait(1 / HERTZ):
                now, sample = time.time(), self.card.sample()
                self.seen.append((now, sample))
                file.write(json.dumps({"time": round(now, 3), **vars(sample)}) + "\n")
                file.flush()


def cool_down(card: Card | None, target_c: int | None) -> tuple[int | None, float]:
    """Wait until the card is within 2 C of `target_c`, at most 5 minutes.

    Returns the temperature reached (None without a card) and the seconds waited.
    """
    if card is None:
        return None, 0.0
    start = time.monotonic()
    while True:
        temperature = card.sample().temperature_c
        waited = time.monotonic() - start
        if temperature is None or target_c is None or temperature <= target_c + COOL_MARGIN_C:
            return temperature, waited
        if waited > COOL_LIMIT_S:
            return temperature, waited
        time.sleep(1 / HERTZ)
