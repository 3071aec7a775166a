"""Repacking: a published checkpoint by llama.cpp's converter to Q8_0, then exact Q4_0 and bf16."""

import json
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common import places
from common.digest import sha256
from common.engines.llamacpp import jobs
from common.engines.llamacpp.converter import Converter
from common.errors import RigError
from common.files.snapshot import Snapshot
from common.files.wanted import Say, other_name
from common.host import facts
from common.measure import run
from common.weights.checkpoint import open_checkpoint
from common.weights.exact import plan, repack
from common.weights.gguf_file import open_gguf
from common.weights.verify import Row, check


@dataclass(frozen=True)
class Made:
    """One file that was made."""

    kind: str
    """q4_0, q8_0 or bf16"""
    path: Path
    size: int
    sha256: str
    by_type: list[Row]
    """how near its weights are to the checkpoint's, added up by tensor type"""
    note: str
    """how it compares with what was there, or with the pin"""


def make(
    snapshot: Path, name: str, pin: str | None, converter: Converter, work: Path, say: Say
) -> list[Made]:
    """Convert and repack a checkpoint into the models folder, check each file, take digests.

    `name` is the exact Q4_0 file's; the others are named after it. What is there already is never
    replaced: the new file then stays in `work`, unless it is the same to the byte. `pin` is the
    SHA-256, or its beginning, of a published exact Q4_0 file. Raises RigError if a weight is off
    its grid, or if the checkpoint cannot be converted.
    """
    if not re.search(r"-q4_0(-exact)?\.gguf$", name):
        raise RigError(f"{name}: expected a name ending in -q4_0.gguf or -q4_0-exact.gguf")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    named = {"q8_0": other_name(name, "q8_0"), "q4_0": name, "bf16": other_name(name, "bf16")}
    files = {kind: work / Path(file).name for kind, file in named.items()}
    say("converting to Q8_0 with llama.cpp's converter")
    converter.convert(snapshot, files["q8_0"])
    base, checkpoint = open_gguf(files["q8_0"]), open_checkpoint(snapshot)
    for kind in ("q4_0", "bf16"):
        say(f"repacking to {'exact Q4_0' if kind == 'q4_0' else 'bf16'}")
        moves = plan(checkpoint, base, bf16=kind == "bf16")
        repack(base, moves, files[kind], jobs.usable_cores())
    made = []
    for kind, path in files.items():
        say(f"checking {path.name}")
        _rows, totals = check(checkpoint, open_gguf(path))
        digest, size = sha256(path), path.stat().st_size
        place = places.model_file(named[kind])
        final, note = _settle(path, place, digest)
        if kind == "q4_0" and pin:
            same = "as pinned" if len(pin) == 64 else "as published, by its first digits"
            note += f"; {same if digest.startswith(pin) else f'not the pinned file ({pin})'}"
        made.append(Made(kind, final, size, digest, totals, note))
    return made


def _settle(path: Path, place: Path, digest: str) -> tuple[Path, str]:
    """Move a finished file to its place; returns where it is, and a word on it."""
    if place.is_file():
        if sha256(place) == digest:
            path.unlink()
            return place, "the same to the byte as the file that was there"
        return path, f"differs from {place}, which stays; this one is left beside"
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(path, place)
    return place, "new"


def record(made: list[Made], snapshot: Snapshot, converter: Converter) -> Path:
    """Write what was made, from what and by what, beside the exact Q4_0 file."""
    origin = converter.origin
    text: dict[str, Any] = {
        "repository": snapshot.repository,
        "revision": snapshot.revision,
        "converter": {"kind": origin.kind, "version": origin.version},
        "harness": facts.harness(),
        "made": run.now(),
        "files": [asdict(file) | {"path": file.path.name} for file in made],
    }
    exact = next(file.path for file in made if file.kind == "q4_0")
    path = exact.with_suffix(".repack.json")
    path.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    return path
