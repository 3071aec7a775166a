"""The text of a bench-repack report."""

from pathlib import Path

from common.kinds.bench_repack.plan import (
    MAX_RATIO,
    MAX_RESIDENT,
    MIN_NUMPY_RATIO,
)
from common.kinds.bench_repack.schema import Command, Summary
from common.measure import page
from common.measure.journal import RepackManifest


def render(summary: Summary, manifest: RepackManifest, _folder: Path) -> str:
    """REPORT.md as text."""
    ratios = summary["ratios"]
    targets = [
        [
            "wall over llama-quantize's, both until the output is on the disk",
            f"{summary['ratio']:.2f} (rounds {min(ratios):.2f} to {max(ratios):.2f})",
            f"at most {MAX_RATIO:g}",
        ],
        ["the same, its sync left out and ours not", f"{summary['ratio_unsynced']:.2f}", ""],
        [
            "times faster than the plain NumPy search",
            f"{summary['numpy_ratio']:.1f}",
            f"at least {MIN_NUMPY_RATIO:g}",
        ],
        [
            "most resident memory, MB",
            f"{summary['resident'] / 1e6:.0f}",
            f"at most {MAX_RESIDENT / 1e6:.0f}",
        ],
    ]
    host, commit = manifest["host"], (manifest["harness"]["commit"] or "unknown")[:12]
    dirty = " with changes" if manifest["harness"]["dirty"] else ""
    ran = [
        [
            "weights",
            f"{summary['source_bytes']:,} bytes of bf16, random, of Gemma 4 E2B's layer "
            "sizes cut to two layers",
        ],
        ["threads, rounds", f"{summary['threads']}, {summary['rounds']}"],
        ["llama-quantize", manifest["engine_title"]],
        [
            "host",
            f"{host['cpu']}, {host['cores']} cores, {host['memory_gib']} GiB, "
            f"Linux {host['kernel']}",
        ],
        ["load before", f"{manifest['load']:.2f} processes ready to run, over the last minute"],
        ["harness", f"commit {commit}{dirty}"],
        ["started, ended", f"{manifest['started']}, {manifest['ended'] or 'not ended'}"],
    ]
    pieces = [
        f"# Exact repack: speed and memory, {manifest['started'][:10]}",
        f"**{answer(summary, manifest)}**",
        "## Result",
        page.table(["", "measured", "wanted"], targets),
        page.table(
            ["command", "median s", "CPU s", "MB/s", "resident MB"],
            [_shown(row) for row in summary["commands"]],
        ),
        "Both commands take turns on the same weights and cores, after one round that is not "
        "counted. MB/s is of the bf16 weights. CPU time is of all threads, and steadier than wall "
        "on a busy host.",
        "## What was run",
        page.table(["", ""], ran),
        "## Do it again",
        f"```\ngit checkout {manifest['harness']['commit'] or 'COMMIT'}\nmake bench-repack\n```\n\n"
        "This page again from the files beside it: `make report RUN=` and this folder.",
    ]
    return "\n\n".join(pieces) + "\n"


def _shown(row: Command) -> list[str]:
    resident = row["resident"]
    return [
        row["command"],
        page.number(row["seconds"], 2),
        page.number(row["cpu_seconds"], 2),
        f"{row['mb_per_s']:,.0f}",
        "" if resident is None else f"{resident / 1e6:.0f}",
    ]


def answer(summary: Summary, _manifest: object) -> str:
    """The answer in one sentence."""
    verdict = "all targets are met" if summary["meets_targets"] else "NOT all targets are met"
    return (
        f"The exact repack of {summary['source_bytes'] / 1e6:.0f} MB takes {summary['ratio']:.2f} "
        f"times as long as llama-quantize with {summary['threads']} threads, is "
        f"{summary['numpy_ratio']:.0f} times as fast as plain NumPy, and holds "
        f"{summary['resident'] / 1e6:.0f} MB: {verdict}."
    )
