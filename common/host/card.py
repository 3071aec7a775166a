"""Card: what NVML says of the card, telemetry beside a measurement, and cool-down."""

import json
import os
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pynvml

from common.errors import RigError
from common.host import driver
from common.host.energy import WATCH_S, Packages, Source
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

# What NVML says when a card fell off the bus, its driver is gone, or a container lost its device.
LOST = {
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_GPU_NOT_FOUND,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_UNKNOWN,
}


@dataclass(frozen=True)
class Sample:
    """One reading of the card. MHz, degrees C, watts, MiB, percent; None where it gives none."""

    clock_mhz: int | None
    memory_clock_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    memory_mib: float | None
    utilization_pct: int | None
    throttles: tuple[str, ...] | None


class LostError(RigError):
    """The card was there, and is no more."""


class Card:
    """One NVIDIA card, through NVML."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.name = str(pynvml.nvmlDeviceGetName(handle))
        uuid = _try(pynvml.nvmlDeviceGetUUID, handle)
        self.uuid = None if uuid is None else str(uuid)

    def sample(self) -> Sample:
        """Raises LostError."""
        mask = _try(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, self.handle)
        power = _try(pynvml.nvmlDeviceGetPowerUsage, self.handle)
        memory = _try(pynvml.nvmlDeviceGetMemoryInfo, self.handle)
        utilization = _try(pynvml.nvmlDeviceGetUtilizationRates, self.handle)
        return Sample(
            _try(pynvml.nvmlDeviceGetClockInfo, self.handle, pynvml.NVML_CLOCK_SM),
            _try(pynvml.nvmlDeviceGetClockInfo, self.handle, pynvml.NVML_CLOCK_MEM),
            _try(pynvml.nvmlDeviceGetTemperature, self.handle, pynvml.NVML_TEMPERATURE_GPU),
            None if power is None else power / 1000,
            None if memory is None else memory.used / 2**20,
            None if utilization is None else utilization.gpu,
            None if mask is None else tuple(why for bit, why in THROTTLES.items() if mask & bit),
        )

    def energy_j(self) -> float | None:
        """Joules since the driver was loaded; None before Volta. Raises LostError."""
        counted = _try(pynvml.nvmlDeviceGetTotalEnergyConsumption, self.handle)
        return None if counted is None else float(counted / 1000)

    def memory_mib(self) -> tuple[float, float]:
        """Free and total card memory in MiB. Raises RigError if it is not told."""
        memory = _try(pynvml.nvmlDeviceGetMemoryInfo, self.handle)
        if memory is None:
            raise RigError(f"{self.name} does not say how much memory it has")
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
    """The value, or None where this card or driver does not give it. Raises LostError."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if error.value in LOST:
            raise LostError(
                f"the card is lost (NVML: {error})",
                fix="see dmesg; reset it (nvidia-smi --gpu-reset) or start the host again. What "
                "was measured before is kept: then continue with RESUME=1",
            ) from None
        return None
    except pynvml.NVMLLibraryMismatchError:  # a driver too old for the question
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
        raise RigError(
            f"no NVIDIA card can be used on this host (NVML: {error})",
            fix=driver.nvml_error(error.value, str(error)).fix,
        ) from None


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
            f"{rig.name} is for the card {rig.gpu_name}, but {error.what}; {error.fix}, {advice}."
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


def energy_source(card: Card | None) -> Source | None:
    """What can be read here: joules or watts of the card; without one, joules of the CPU packages.
    None: nothing."""
    if card is None:
        return "RAPL package" if Packages().read() is not None else None
    if card.energy_j() is not None:
        return "NVML energy counter"
    return None if card.sample().power_w is None else "NVML power x time"


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
    """Readings of the card at 5 Hz into a file, one line each, and the energy that is drawn
    meanwhile, from `source`. Without a card or a source it does nothing."""

    def __init__(self, card: Card | None, file: Path, source: Source | None = None) -> None:
        self.card = card
        self.file = file
        self.source = source
        self.seen: list[tuple[float, Sample]] = []
        self._packages = Packages() if source == "RAPL package" else None
        self._broken: RigError | None = None
        self.ended = threading.Event()
        self._stop = threading.Event()
        self._work = self._sample if card else self._watch if self._packages else None
        self._thread = threading.Thread(target=self._work, name="telemetry", daemon=True)

    def __enter__(self) -> "Telemetry":
        if self._work:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._work:
            self._thread.join()

    def during(self, start: float, end: float) -> list[Sample]:
        """Samples between two `time.time()` values."""
        return [sample for when, sample in self.seen if start <= when <= end]

    def check(self) -> None:
        """Raises RigError if readings have ended: the card is lost, or they cannot be written."""
        if self._broken:
            raise self._broken

    def throttles(self, start: float, end: float) -> list[str] | None:
        """Why the card was slower between two `time.time()` values, read now if it was not read
        between them; none without a card, and None if it does not say. Raises LostError."""
        if self.card is None:
            return []
        read = [sample.throttles for sample in self.during(start, end) or [self.card.sample()]]
        told = [reasons for reasons in read if reasons is not None]
        return sorted({reason for reasons in told for reason in reasons}) if told else None

    def joules(self) -> float | None:
        """What the source's counter says now; None without one, or if it cannot be read."""
        if self._packages:
            return self._packages.read()
        counts = self.source == "NVML energy counter"
        return self.card.energy_j() if self.card and counts else None

    def drawn(self, before: float | None, start: float, end: float) -> float | None:
        """Joules drawn from `start` to `end`, which is now; `before` is what `joules` said at the
        start. None where that is not known: a counter that stood still has counted nothing."""
        if self.source == "NVML power x time":
            return self._power_x_time(start, end)
        after = self.joules()
        if before is None or after is None or after <= before:
            return None
        return after - before

    def _power_x_time(self, start: float, end: float) -> float | None:
        """Mean power times time; None if half of the readings that were due are missing."""
        watts = [sample.power_w for sample in self.during(start, end)]
        known = [power for power in watts if power is not None]
        if len(known) < max(2.0, (end - start) * HERTZ / 2):
            return None
        return statistics.fmean(known) * (end - start)

    def _watch(self) -> None:
        assert self._packages is not None
        while not self._stop.wait(WATCH_S):
            self._packages.read()

    def _sample(self) -> None:
        try:
            with self.file.open("a") as file:
                while not self._stop.wait(1 / HERTZ):
                    self._read_into(file)
        except RigError as error:
            self._broken = error
        except OSError as error:
            self._broken = RigError(
                f"{self.file} cannot be written: {error.strerror or error}",
                fix="what was measured before is kept. Make room there, then continue with "
                "RESUME=1",
            )
        finally:
            self.ended.set()

    def _read_into(self, file: TextIO) -> None:
        assert self.card is not None
        now, sample = time.time(), self.card.sample()
        self.seen.append((now, sample))
        file.write(json.dumps({"time": round(now, 3), **vars(sample)}) + "\n")
        file.flush()


def cool_down(card: Card | None, target_c: int | None) -> tuple[int | None, float]:
    """Wait until the card is within 2 C of `target_c`, at most 5 minutes.

    Returns the temperature reached (None without a card) and the seconds waited. Raises LostError.
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
