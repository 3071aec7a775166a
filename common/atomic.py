"""Atomic: a file that a reader sees whole, or as it was before; never half.

Needs the standard library only: it serves before anything is installed.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


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


def write(path: Path, content: str | bytes, sync: bool = False) -> None:
    """Write a whole file or nothing; with `sync` it is on the disk before it gets its name."""
    data = content.encode() if isinstance(content, str) else content
    with part_of(path) as part, part.open("wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
