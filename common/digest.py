"""SHA-256 of files, and the record that saves working it out again."""

import contextlib
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from common import atomic, places

RECORD = ".digests.json"


def sha256(path: Path) -> str:
    """The file's SHA-256 in lower-case hex, read in pieces of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def known(path: Path) -> str:
    """The file's SHA-256, from the record if the file has not changed since."""
    entry = recorded(path)
    if entry is None:
        return record(path, sha256(path))
    return str(entry["sha256"])


def anew(path: Path) -> str:
    """The file's SHA-256 read from the file itself; what is recorded of its origin stays."""
    entry = recorded(path) or {}
    return record(path, sha256(path), entry.get("from"), entry.get("revision"))


def recorded(path: Path) -> dict[str, Any] | None:
    """sha256, from and revision of a file, if it is still the file that was recorded.

    The same size, time of change and time of status change: what `cp -p` puts in its place is not.
    """
    entry = _read().get(_key(path))
    if not isinstance(entry, dict) or entry.get("stamp") != _stamp(path):
        return None
    return entry if _is_whole(entry) else None


def _is_whole(entry: dict[str, Any]) -> bool:
    """Whether it is what `record` writes: an odd entry is made anew."""
    sha256, named = entry.get("sha256"), [entry.get("from"), entry.get("revision")]
    return (
        isinstance(sha256, str)
        and re.fullmatch(r"[0-9a-f]{64}", sha256) is not None
        and all(name is None or isinstance(name, str) for name in named)
    )


def record(path: Path, digest: str, origin: str | None = None, revision: str | None = None) -> str:
    """Remember the digest of a file, and where it was fetched from. Returns the digest."""
    entries = _read()
    entries[_key(path)] = {
        "stamp": _stamp(path),
        "sha256": digest,
        "from": origin,
        "revision": revision,
    }
    # Only a saving: a models folder that cannot be written does without.
    with contextlib.suppress(OSError):
        atomic.write(places.models() / RECORD, json.dumps(entries, indent=1) + "\n")
    return digest


def _read() -> dict[str, Any]:
    path = places.models() / RECORD
    if not path.is_file():  # a pipe of that name would be waited for
        return {}
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _key(path: Path) -> str:
    """Relative to the models folder, which is elsewhere in a container."""
    models = places.models()
    return str(path.relative_to(models) if path.is_relative_to(models) else path)


def _stamp(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns]
