"""SHA-256 of files."""

import hashlib
from pathlib import Path


def sha256(path: Path) -> str:
    """The file's SHA-256 in lower-case hex, read in pieces of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
