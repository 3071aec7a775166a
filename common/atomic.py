"""Atomic: a file that a reader sees whole, or as it was before; never half.

Needs the standard library only: it serves before anything is installed.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def part_of(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to. It becomes `path` at the end, and goes after any error.

    A file that is there keeps its mode, and a link stays a link.
    """
    path = path.resolve()
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)  # a link of that name would be written through
    try:
        yield part
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def write(path: Path, content: str | bytes, sync: bool = False, private: bool = False) -> None:
    """Write a whole file or nothing; with `sync` it is on the disk before it gets its name. A new
    one that is `private` is nobody else's to read."""
    data = content.encode() if isinstance(content, str) else content
    with part_of(path) as part, os.fdopen(_opened(part, os.O_TRUNC, private), "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())


def append(path: Path) -> BinaryIO:
    """A file to write on at its end; a new one is nobody else's to read."""
    return os.fdopen(_opened(path, os.O_APPEND, True), "ab")


def _opened(path: Path, how: int, private: bool) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600 if private else 0o666)
