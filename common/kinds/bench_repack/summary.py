"""What is made of the timings of a bench-repack run."""

import statistics
from pathlib import Path

from common.kinds.bench_repack.plan import (
    Figures,
    Timing,
    from_lines,
)
from common.kinds.bench_repack.schema import Command, Summary
from common.measure import run
from common.measure.rows import significant


def summarise(folder: Path) -> Summary:
    """Every figure of the report, from the run directory alone."""
    manifest = run.read_manifest(folder)
    figures = from_lines(run.read_lines(folder, run.JOURNAL))
    return {
        "what": manifest["what"],
        "rig": manifest["rig"],
        "complete": manifest["ended"] is not None,
        "source_bytes": figures.source_bytes,
        "threads": figures.threads,
        "rounds": len(figures.exact),
        "commands": _commands(figures),
        "ratio": significant(figures.ratio),
        "ratios": [significant(ratio) for ratio in figures.ratios],
        "ratio_unsynced": significant(statistics.median(figures.ratios_unsynced)),
        "numpy_ratio": significant(figures.numpy_ratio),
        "resident": figures.resident,
        "meets_targets": figures.meets_targets,
    }


def _commands(figures: Figures) -> list[Command]:
    synced = [timing.seconds + timing.sync_seconds for timing in figures.quantize]
    return [
        _row("exact repack, whole command, output synced", figures.exact, figures),
        _row("exact repack, without starting Python", [figures.inside_seconds], figures),
        _row("llama-quantize --pure q4_0", figures.quantize, figures),
        _row("llama-quantize, output synced", synced, figures),
        _row("NumPy search (from a slice)", [figures.numpy_seconds], figures),
    ]


def _row(name: str, runs: list[Timing] | list[float], figures: Figures) -> Command:
    """Medians over rounds of one command; what was not measured is None."""
    timings = [found for found in runs if isinstance(found, Timing)]
    walls = [found.seconds if isinstance(found, Timing) else found for found in runs]
    seconds = statistics.median(walls)
    cpu = statistics.median(found.cpu_seconds for found in timings) if timings else None
    return {
        "command": name,
        "seconds": significant(seconds),
        "cpu_seconds": significant(cpu),
        "mb_per_s": significant(figures.source_bytes / seconds / 1e6),
        "resident": max((found.resident for found in timings), default=None),
    }
