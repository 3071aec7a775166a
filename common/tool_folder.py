"""Tool folder: programs from the package index, in a cache folder of their own.

Needs the standard library only: it serves before anything is installed.
"""

import os
import platform
import shutil
import subprocess
from pathlib import Path

from common import places
from common.digest import sha256
from common.errors import RigError


def place(name: str, lock: Path) -> Path:
    """Where the programs of a lock lie: another lock or machine has another folder."""
    return places.cache() / "tools" / f"{name}-{platform.machine()}-{sha256(lock)[:10]}"


def bring(home: Path, lock: Path, python: Path) -> None:
    """Install a lock into `home`, whole or not at all, with the pip of `python`.

    Raises RigError if pip cannot have it, or the index has nothing ready-made for this machine.
    """
    part = home.with_name(f"{home.name}.{os.getpid()}.part")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--only-binary", ":all:", "--require-hashes", "--target", str(part), "-r", str(lock)]
    # A user's `user = true` in pip.conf does not go together with --target.
    environment = {**os.environ, "PIP_USER": "0"}
    try:
        done = subprocess.run(
            pip, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment
        )
        if done.returncode != 0:
            raise RigError(last_error(done.stderr))
        part.rename(home)
    except OSError as error:
        if not home.is_dir():  # else another call has brought it meanwhile
            raise RigError(f"{home} cannot be made: {error}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def last_error(text: str) -> str:
    """The line of an installer's words that says why."""
    lines = [line.strip(" ├─▶╰\N{MULTIPLICATION SIGN}") for line in text.splitlines()]
    lines = [line for line in lines if line]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["no reason given"])[-1]
