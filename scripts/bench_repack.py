"""Time the exact repack against llama-quantize and plain NumPy on the same bf16 weights."""

import argparse
import json
import os
import shutil
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tabulate import tabulate
from tqdm import tqdm

from common.errors import RigError
from common.repack_bench import (
    MAX_RATIO,
    MAX_RESIDENT,
    MIN_NUMPY_RATIO,
    Figures,
    make_inputs,
    measure,
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="work folder; the inputs (3.2 GB) are made there")
    parser.add_argument(
        "--llama-quantize",
        default=os.environ.get("LLAMA_QUANTIZE", "llama-quantize"),
        help="the program to compare with (else LLAMA_QUANTIZE, else the one on PATH)",
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write every figure here too")
    args = parser.parse_args(arguments)
    if args.threads < 1 or args.rounds < 1:
        parser.error("--threads and --rounds must be 1 or more")
    try:
        program = shutil.which(args.llama_quantize)
        if program is None:
            raise RigError(
                f"no program {args.llama_quantize}; set LLAMA_QUANTIZE to llama-quantize"
            )
        with tqdm(desc="inputs", unit="value", unit_scale=True, disable=None) as bar:
            make_inputs(args.folder, args.threads, bar.update)
        figures = measure(args.folder, Path(program), args.threads, args.rounds)
    except RigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    _print(figures)
    if args.json:
        whole = asdict(figures) | {
            "ratio": figures.ratio,
            "ratios": figures.ratios,
            "ratios_unsynced": figures.ratios_unsynced,
            "numpy_ratio": figures.numpy_ratio,
            "resident": figures.resident,
            "meets_targets": figures.meets_targets,
        }
        args.json.write_text(json.dumps(whole, indent=1) + "\n")
    return 0 if figures.meets_targets else 1


def _print(figures: Figures) -> None:
    exact = statistics.median(t.seconds for t in figures.exact)
    quantize = statistics.median(t.seconds for t in figures.quantize)
    synced = statistics.median(t.seconds + t.sync_seconds for t in figures.quantize)
    most = max(t.resident for t in figures.quantize)
    size = figures.source_bytes
    cpu = [statistics.median(t.cpu_seconds for t in ts) for ts in (figures.exact, figures.quantize)]
    rows: list[tuple[str, float, float, int]] = [
        ("exact repack, whole command", exact, cpu[0], figures.resident),
        ("exact repack, without starting Python", figures.inside_seconds, 0, 0),
        ("llama-quantize --pure q4_0", quantize, cpu[1], most),
        ("llama-quantize, output synced", synced, 0, 0),
        ("NumPy search (from a slice)", figures.numpy_seconds, 0, 0),
    ]
    print(f"{size:,} bytes of bf16, {figures.threads} threads, {len(figures.exact)} paired rounds")
    cells = []
    for name, seconds, busy, memory in rows:
        shown = [f"{seconds:.2f}", f"{busy:.2f}" if busy else "", f"{size / seconds / 1e6:,.0f}"]
        cells.append([name, *shown, f"{memory / 1e6:,.0f}" if memory else ""])
    heads = ["", "median s", "CPU s", "MB/s", "resident MB"]
    print(tabulate(cells, heads, disable_numparse=True))
    unsynced = statistics.median(figures.ratios_unsynced)
    print(
        f"wall over llama-quantize's: {figures.ratio:.2f} (at most {MAX_RATIO:g}; rounds "
        f"{min(figures.ratios):.2f} to {max(figures.ratios):.2f}; {unsynced:.2f} if its sync is "
        f"left out and ours is not)\n"
        f"faster than NumPy: {figures.numpy_ratio:.1f} times (at least {MIN_NUMPY_RATIO:g})\n"
        f"resident: {figures.resident / 1e6:.0f} MB (at most {MAX_RESIDENT / 1e6:.0f})"
    )


if __name__ == "__main__":
    sys.exit(main())
