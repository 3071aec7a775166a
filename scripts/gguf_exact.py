"""Write a checkpoint's weights, exactly, in the layout of the converter's Q8_0 file; or check one.

gguf_exact.py SNAPSHOT_DIR Q8_0.gguf OUT.gguf [--bf16] [--keep PATTERN=TYPE]
gguf_exact.py SNAPSHOT_DIR --check FILE [--json OUT.json]
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tabulate import tabulate
from tqdm import tqdm

from common.engines.llamacpp import jobs
from common.weights.checkpoint import open_checkpoint
from common.weights.exact import KEEP_TYPES, plan, repack
from common.weights.gguf_file import open_gguf
from common.weights.verify import Row, check
from scripts import _cli


def body(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("snapshot", type=Path, help="folder with the .safetensors files")
    parser.add_argument("q8_0", type=Path, nargs="?", help="llama.cpp's conversion of it to Q8_0")
    parser.add_argument("out", type=Path, nargs="?", help="the file to write")
    parser.add_argument("--bf16", action="store_true", help="write the original weights, not Q4_0")
    parser.add_argument(
        "--keep",
        action="append",
        default=[],
        type=_keep,
        metavar="PATTERN=TYPE",
        help="leave the tensors of that name unquantized, as f32, f16 or bf16",
    )
    parser.add_argument("--threads", type=int, default=jobs.usable_cores())
    parser.add_argument("--check", type=Path, metavar="FILE", help="compare FILE with the snapshot")
    parser.add_argument("--json", type=Path, help="with --check: write the figures here too")
    args = parser.parse_args(arguments)
    if (args.check is None) == (args.out is None):
        parser.error("give either Q8_0.gguf and OUT.gguf, or --check FILE")
    if args.threads < 1:
        parser.error("--threads must be 1 or more")
    if args.check:
        _check(args.snapshot, args.check, args.json)
    else:
        _repack(args)


def _repack(args: argparse.Namespace) -> None:
    started = time.perf_counter()
    base = open_gguf(args.q8_0)
    moves = plan(open_checkpoint(args.snapshot), base, args.bf16, args.keep)
    with tqdm(
        total=sum(move.like.size for move in moves), unit="value", unit_scale=True, disable=None
    ) as bar:
        repack(base, moves, args.out, args.threads, bar.update)
    seconds = time.perf_counter() - started
    size = args.out.stat().st_size
    _cli.say(f"wrote {args.out}: {len(moves)} tensors, {size:,} bytes, {seconds:.2f} s")


def _check(snapshot: Path, path: Path, json_path: Path | None) -> None:
    file = open_gguf(path)
    total = sum(tensor.size for tensor in file.tensors)
    with tqdm(total=total, unit="value", unit_scale=True, disable=None) as bar:
        rows, totals = check(open_checkpoint(snapshot), file, bar.update)
    heads = ["tensor", "type", "values", "bytes", "bit-identical", "relative error"]
    _cli.say(tabulate([_cells(row) for row in rows + totals], heads, disable_numparse=True))
    if json_path:
        figures = {
            "file": path.name,
            "bytes": path.stat().st_size,
            "tensors": [asdict(row) for row in rows],
            "by_type": [asdict(row) for row in totals],
        }
        json_path.write_text(json.dumps(figures, indent=1) + "\n")


def _cells(row: Row) -> list[str]:
    identical = "" if row.identical is None else f"{row.identical:.3%}"
    error = "" if row.relative_error is None else f"{row.relative_error:.5f}"
    return [row.name, row.type, f"{row.values:,}", f"{row.bytes:,}", identical, error]


def _keep(text: str) -> tuple[str, str]:
    pattern, _, kind = text.rpartition("=")
    if not pattern or kind not in KEEP_TYPES:
        raise argparse.ArgumentTypeError(f"expected PATTERN=TYPE with TYPE {', '.join(KEEP_TYPES)}")
    return pattern, kind


if __name__ == "__main__":
    _cli.main(body)
