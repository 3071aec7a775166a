"""Written: what the files of a finished run were when its report was written.

Formulas change with this project, and then give other figures from the same journal; files must
not change. From what is noted here, compare tells the one from the other.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from common import atomic
from common.digest import sha256
from common.errors import RigError
from common.measure import run

MEASURED = (run.MANIFEST, run.JOURNAL, run.STARTS)
"""what the figures are made from"""
Noted = Mapping[str, str | None]


def note(folder: Path) -> None:
    """Note the files of a finished run as they are now.

    A report made again is noted too, but not over a manifest or journal that has changed since:
    then the older note stays, which shows it. Raises RigError if that cannot be read.
    """
    old = _noted(folder)
    if old is None or not _differ(folder, old, MEASURED):
        digests = {name: _digest(folder / name) for name in (*MEASURED, run.SUMMARY)}
        found = {"version": run.VERSIONS[run.WRITTEN], "sha256": digests}
        atomic.write(folder / run.WRITTEN, json.dumps(found, indent=1) + "\n")


def changed(folder: Path) -> list[str] | None:
    """The files that are not as they were; None if nobody noted that. Raises RigError as above."""
    noted = _noted(folder)
    return None if noted is None else _differ(folder, noted, noted)


def _noted(folder: Path) -> Noted | None:
    path = folder / run.WRITTEN
    if not path.is_file():
        return None
    found = run.known(path.read_bytes(), run.WRITTEN, str(path)).get("sha256")
    if not isinstance(found, dict) or found.keys() != {*MEASURED, run.SUMMARY}:
        raise RigError(f"{path} is damaged (not every file is named); bring the whole folder again")
    return found


def _differ(folder: Path, noted: Noted, names: Iterable[str]) -> list[str]:
    return [name for name in names if noted[name] != _digest(folder / name)]


def _digest(path: Path) -> str | None:
    """None for a file that is not there: not every kind of run has all of them."""
    return sha256(path) if path.is_file() else None
