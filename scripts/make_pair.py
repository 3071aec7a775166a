"""Make a target and a drafter with the layer shapes of a real model and random weights."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from common.errors import RigError
from common.shaped_pair import FORMATS, ROLES, layout_of, write_gguf, write_safetensors
from common.shapes import SHAPES


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder to write into")
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--format", choices=[*FORMATS, "safetensors"], required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args(arguments)
    if args.threads < 1:
        parser.error("--threads must be 1 or more")
    try:
        for role in ROLES:
            _make(args, role)
    except RigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _make(args: argparse.Namespace, role: str) -> None:
    shape = SHAPES[args.shape]
    if args.format == "safetensors":
        path = args.out / f"{args.shape}-{role}" / "model.safetensors"
    else:
        path = args.out / f"{args.shape}-{role}-{args.format}.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    total = sum(tensor.size for tensor in layout_of(shape, role))
    with tqdm(total=total, desc=role, unit="value", unit_scale=True, disable=None) as bar:
        if args.format == "safetensors":
            write_safetensors(path, shape, role, args.threads, bar.update)
        else:
            write_gguf(path, shape, role, args.format, args.threads, bar.update)
    print(f"wrote {path}: {path.stat().st_size:,} bytes, random weights")


if __name__ == "__main__":
    sys.exit(main())
