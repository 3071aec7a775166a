"""pip: brings packages from the index that the user's own settings name; its error in one line.

Needs the standard library only: it serves before anything is installed.
"""

import os
import subprocess
import sys
from pathlib import Path

from common.errors import RigError


def run(python: Path, command: str, *arguments: str) -> None:
    """Run a command of that Python's pip. Raises RigError with the line that says why."""
    line = [str(python), "-m", "pip", command, "--quiet", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*line, *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            # A user's `user = true` in pip.conf goes with no target of ours.
            env={**os.environ, "PIP_USER": "0"},
        )
    except OSError as error:
        raise RigError(f"{python} does not run ({error.strerror})") from None
    if done.returncode != 0:
        raise RigError(last_error(done.stderr))


def download(folder: Path, pattern: str, *arguments: str) -> list[Path]:
    """Download packages to a folder; returns the files there that the pattern fits.

    Raises RigError with the index's reason; without one if nothing fits.
    """
    run(Path(sys.executable), "download", "--dest", str(folder), *arguments)
    found = sorted(folder.glob(pattern))
    if not found:
        raise RigError(f"it gave no {pattern}")
    return found


def last_error(text: str) -> str:
    """The line of an installer's words that says why."""
    lines = [line.strip(" ├─▶╰\N{MULTIPLICATION SIGN}") for line in text.splitlines()]
    lines = [line for line in lines if line]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["no reason given"])[-1].removeprefix("ERROR: ")
