"""Unpack: an archive's files into a folder, and never beside it.

Needs the standard library only: it serves before anything is installed.
"""

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack everything. Raises tarfile.TarError, OSError or ValueError, for anything that would
    land outside too."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
        return
    # Python 3.10 before .12 and 3.11 before .4, as of Debian 12, have no filters.
    root = folder.resolve()
    members = archive.getmembers()
    for member in members:
        place = (root / member.name).resolve()
        if not (member.isreg() or member.isdir()) or not place.is_relative_to(root):
            raise ValueError(f"{member.name} is no plain file of this archive")
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    archive.extractall(folder, members)  # noqa: S202 (each was looked at)
