"""Repacking: a published checkpoint by llama.cpp's converter to Q8_0, then exact Q4_0 and bf16."""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common import places
from common.digest import sha256
from common.engines.llamacpp.converter import Converter
from common.errors import RigError
from common.files.wanted import other_name
from common.host import facts
from common.measure import run
from common.rig import Rig
from common.weights.checkpoint import open_checkpoint
from common.weights.exact import plan, repack
from common.weights.gguf_file import open_gguf
from common.weights.verify import Row, check

PATTERNS = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model")
SPARE = 2**30
Say = Callable[[str], None]


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint on this disk, and where it is from."""

    folder: Path
    repository: str
    revision: str
    """the full commit"""


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


def fetch(rig: Rig, say: Say) -> Snapshot:
    """Bring the checkpoint REPACK_HF to the cache; a broken download goes on where it stopped.

    Raises RigError if it is not named, cannot be had, or the disk has no room for it and for what
    is made of it.
    """
    # Imported here: they are slow to load and most commands do not need them.
    from httpx2 import HTTPError
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if rig.repack_hf is None:
        raise RigError(f"{rig.name}: set REPACK_HF, the checkpoint to repack")
    token = os.environ.get("HF_TOKEN") or None
    try:
        info = HfApi(token=token).model_info(
            rig.repack_hf, revision=rig.repack_hf_revision, files_metadata=True
        )
        revision = str(info.sha)
        folder = places.cache() / "snapshots" / rig.repack_hf.replace("/", "--") / revision
        need = sum(
            file.size or 0
            for file in info.siblings or ()
            if any(Path(file.rfilename).match(pattern) for pattern in PATTERNS)
        )
        _check_room(folder, 3 * need)  # itself, Q8_0, Q4_0 and bf16
        say(f"fetching {rig.repack_hf} at {revision}, {need / 1e6:.0f} MB")
        snapshot_download(
            rig.repack_hf, revision=revision, local_dir=folder, token=token,
            allow_patterns=list(PATTERNS),
        )  # fmt: skip
    except (HfHubHTTPError, HTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise RigError(
            f"{rig.repack_hf} could not be fetched: {_reason(error)}. Check the network, "
            "HF_ENDPOINT, REPACK_HF and REPACK_HF_REVISION, and HF_TOKEN if its terms must be "
            "accepted first"
        ) from None
    return Snapshot(folder, rig.repack_hf, revision)


def _reason(error: Exception) -> str:
    """What went wrong, without the server's own words: they may hold a token or signed address."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"the server answered {status}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def _check_room(folder: Path, need: int) -> None:
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    free = shutil.disk_usage(there).free
    if free < need + SPARE:
        raise RigError(
            f"{need / 1e9:.1f} GB and 1 GB to spare are needed in {there}, {free / 1e9:.1f} GB are "
            "free; make room, or set GEMMA_RIGS_CACHE to another folder"
        )


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
        repack(base, moves, files[kind], os.cpu_count() or 1)
    made = []
    for kind, path in files.items():
        say(f"checking {path.name}")
        _rows, totals = check(checkpoint, open_gguf(path))
        digest, size = sha256(path), path.stat().st_size
        place = places.model_file(named[kind])
        final, note = _settle(path, place, digest)
        if kind == "q4_0" and pin:
            as_published = digest.startswith(pin)
            note += "; as pinned" if as_published else f"; not the pinned file ({pin})"
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
