"""Make a target and a drafter: a real model's layer shapes with random weights, or (tiny) the
known-answer pair."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm

from common.engines.llamacpp import jobs
from common.errors import RigError
from common.known import files
from common.known.chain import DRAFTER_NAME, TARGET_NAME, make_chain
from common.weights.checkpoint import write_checkpoint
from common.weights.gguf_file import open_gguf
from common.weights.random_pair import FORMATS, ROLES, layout_of, write_gguf, write_safetensors
from common.weights.shapes import SHAPES
from scripts import _cli

TINY = "tiny"


def body(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder to write into")
    parser.add_argument("--shape", choices=[TINY, *SHAPES], required=True)
    parser.add_argument("--format", choices=[*FORMATS, "safetensors"], required=True)
    parser.add_argument("--threads", type=int, default=jobs.usable_cores())
    args = parser.parse_args(arguments)
    if args.threads < 1:
        parser.error("--threads must be 1 or more")
    if args.shape == TINY:
        _make_tiny(args.out, args.format)
        return
    for role in ROLES:
        _make(args, role)


def _make_tiny(out: Path, kind: str) -> None:
    """The known-answer pair; as safetensors, one folder for each model."""
    chain = make_chain()
    if kind != "safetensors":
        for name in (TARGET_NAME, DRAFTER_NAME):
            path = out / files.name_of(name, kind)
            if path.exists():
                raise RigError(f"{path} exists; choose another folder or remove it")
        for path in files.write_pair(out, chain, kind):
            _cli.say(f"wrote {path}: {path.stat().st_size:,} bytes, known answer")
        return
    with TemporaryDirectory() as folder:
        for path in files.write_pair(Path(folder), chain, "bf16"):
            snapshot = out / path.stem.removesuffix("-bf16") / "model.safetensors"
            snapshot.parent.mkdir(parents=True, exist_ok=True)
            write_checkpoint(open_gguf(path), snapshot)
            _cli.say(f"wrote {snapshot}: {snapshot.stat().st_size:,} bytes, known answer")


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
    _cli.say(f"wrote {path}: {path.stat().st_size:,} bytes, random weights")


if __name__ == "__main__":
    _cli.main(body)
