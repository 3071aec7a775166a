"""A repack timed against llama-quantize and against plain NumPy, on the same weights and cores."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.errors import RigError
from common.measure.journal import Command
from common.rig import ROOT
from common.weights import q4_0
from common.weights.checkpoint import open_checkpoint, read
from common.weights.exact import plan, repack
from common.weights.gguf_file import open_gguf
from common.weights.random_pair import write_gguf, write_safetensors
from common.weights.shapes import SHAPES

REPACK = ROOT / "scripts" / "gguf_exact.py"
NUMPY_VALUES = 2**22
"""a slice is enough for NumPy: it takes the same time for every group"""
MAX_RATIO, MIN_NUMPY_RATIO, MAX_RESIDENT = 1.0, 20.0, 600_000_000


@dataclass(frozen=True)
class Timing:
    """One command, start to end. seconds: wall; resident: most memory at once, bytes."""

    seconds: float
    cpu_seconds: float
    """of all its threads, in the program and in the kernel: steadier than wall on a busy host"""
    sync_seconds: float
    """to force its output to the disk afterwards; 0 for a command that does so itself"""
    resident: int


@dataclass(frozen=True)
class Figures:
    source_bytes: int
    threads: int
    exact: list[Timing]
    """the gguf_exact command; it syncs its output"""
    quantize: list[Timing]
    """llama-quantize --pure to q4_0, the same round"""
    inside_seconds: float
    """the repack without starting Python, sync included"""
    numpy_seconds: float
    """the NumPy search for `source_bytes`, from a slice"""

    @property
    def ratios(self) -> list[float]:
        """Wall of gguf_exact over llama-quantize's, both until the output is on the disk."""
        pairs = zip(self.exact, self.quantize, strict=True)
        return [ours.seconds / (theirs.seconds + theirs.sync_seconds) for ours, theirs in pairs]

    @property
    def ratios_unsynced(self) -> list[float]:
        """The same, llama-quantize's sync left out; ours still syncs."""
        pairs = zip(self.exact, self.quantize, strict=True)
        return [ours.seconds / theirs.seconds for ours, theirs in pairs]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def numpy_ratio(self) -> float:
        return self.numpy_seconds / self.inside_seconds

    @property
    def resident(self) -> int:
        return max(timing.resident for timing in self.exact)

    @property
    def meets_targets(self) -> bool:
        return (
            self.ratio <= MAX_RATIO
            and self.numpy_ratio >= MIN_NUMPY_RATIO
            and self.resident <= MAX_RESIDENT
        )


def to_lines(figures: Figures) -> Iterator[Command]:
    """The figures as journal lines, one per command that was run."""

    def line(command: str, seconds: float) -> Command:
        return {
            "failed": None,
            "threads": figures.threads,
            "source_bytes": figures.source_bytes,
            "command": command,
            "seconds": seconds,
        }

    for name, timings in (("exact", figures.exact), ("quantize", figures.quantize)):
        for turn, timing in enumerate(timings, 1):
            yield {
                **line(name, timing.seconds),
                "round": turn,
                "cpu_seconds": timing.cpu_seconds,
                "sync_seconds": timing.sync_seconds,
                "resident": timing.resident,
            }
    yield line("inside", figures.inside_seconds)
    yield line("numpy", figures.numpy_seconds)


def from_lines(lines: Sequence[Command]) -> Figures:
    """The figures back from their journal lines."""

    def timings(name: str) -> list[Timing]:
        return [
            Timing(line["seconds"], line["cpu_seconds"], line["sync_seconds"], line["resident"])
            for line in lines
            if line["command"] == name
        ]

    single = {line["command"]: line["seconds"] for line in lines}
    first = lines[0]
    return Figures(
        first["source_bytes"],
        first["threads"],
        timings("exact"),
        timings("quantize"),
        single["inside"],
        single["numpy"],
    )


def make_inputs(
    folder: Path, threads: int, progress: Callable[[int], object], shape: str = "bench"
) -> None:
    """Write the target of `shape` as safetensors, Q8_0 and bf16 GGUF, where not yet there."""
    snapshot, q8, bf16 = _inputs(folder)
    snapshot.mkdir(parents=True, exist_ok=True)
    if not (snapshot / "model.safetensors").exists():
        path = snapshot / "model.safetensors"
        write_safetensors(path, SHAPES[shape], "target", threads, progress)
    for path, kind in ((q8, "q8_0"), (bf16, "bf16")):
        if not path.exists():
            write_gguf(path, SHAPES[shape], "target", kind, threads, progress)


def measure(folder: Path, llama_quantize: Path, threads: int, rounds: int) -> Figures:
    """Run both commands `rounds` times in turn, each first every other time; then NumPy.

    Needs `make_inputs`. One round before them is not counted: it fills caches. Raises RigError if
    a command fails.
    """
    snapshot, q8, bf16 = _inputs(folder)
    ours, theirs = folder / "exact.gguf", folder / "quantize.gguf"
    quantize = [str(llama_quantize), "--pure", str(bf16), str(theirs), "q4_0", str(threads)]
    exact = [sys.executable, str(REPACK), str(snapshot), str(q8), str(ours)]
    commands = {"exact": [*exact, "--threads", str(threads)], "quantize": quantize}
    outputs = {"exact": ours, "quantize": theirs}
    timings: dict[str, list[Timing]] = {"exact": [], "quantize": []}
    for number in range(rounds + 1):
        for name in ("exact", "quantize") if number % 2 else ("quantize", "exact"):
            outputs[name].unlink(missing_ok=True)
            timing = _time(commands[name], outputs[name])
            if number:
                timings[name].append(timing)
    inside = statistics.median(_time_inside(snapshot, q8, ours, threads) for _ in range(rounds))
    for path in outputs.values():
        path.unlink()
    size = sum(2 * tensor.size for tensor in open_checkpoint(snapshot).values())
    slowest = _time_numpy(snapshot) * size / (2 * NUMPY_VALUES)
    return Figures(size, threads, timings["exact"], timings["quantize"], inside, slowest)


def _inputs(folder: Path) -> tuple[Path, Path, Path]:
    return folder / "snapshot", folder / "q8_0.gguf", folder / "bf16.gguf"


def _time(command: Sequence[str], output: Path) -> Timing:
    environment = {**os.environ, "PYTHONPATH": str(REPACK.parents[1])}
    started = time.perf_counter()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        said = process.stderr.read() if process.stderr else ""
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RigError(f"{' '.join(command)} failed: {said.strip()[-500:]}")
    started = time.perf_counter()
    with output.open("rb") as file:
        os.fsync(file.fileno())
    sync = time.perf_counter() - started
    return Timing(seconds, usage.ru_utime + usage.ru_stime, sync, usage.ru_maxrss * 1024)


def _time_inside(snapshot: Path, q8: Path, out: Path, threads: int) -> float:
    out.unlink(missing_ok=True)
    started = time.perf_counter()
    base = open_gguf(q8)
    repack(base, plan(open_checkpoint(snapshot), base), out, threads)
    return time.perf_counter() - started


def _time_numpy(snapshot: Path) -> float:
    largest = max(open_checkpoint(snapshot).values(), key=lambda tensor: tensor.size)
    count = min(NUMPY_VALUES, largest.size)
    values = read(largest, 0, count).reshape(-1, q4_0.GROUP)
    started = time.perf_counter()
    q4_0.repack_numpy(values)
    return (time.perf_counter() - started) * NUMPY_VALUES / count
