"""What is in the models folder: a rig's files and the rest, verified or not."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from common import digest, places
from common.errors import RigError, disk_says
from common.files import wanted
from common.files.wanted import Wanted
from common.rig import Rig

AGAIN = "see that the folder can be read and that nobody moves files in it, then run this again"


@dataclass(frozen=True)
class Row:
    role: str
    name: str
    size: int | None
    """bytes; None if the file is not here"""
    sha256: str | None
    """None if the file is not here, or if it was never worked out"""
    state: str


def of_rig(rig: Rig) -> list[Row]:
    """The rig's files. A digest is worked out where it is not on record: seconds per 5 GB."""
    with disk_says(places.models(), AGAIN):
        return [_of_rig(file) for file in wanted.wanted(rig)]


def others(rig: Rig) -> list[Row]:
    """Whatever else is in the models folder; nothing is read, only what is on record is said."""
    with disk_says(places.models(), AGAIN):
        return _others({file.path for file in wanted.wanted(rig)})


def _others(own: set[Path]) -> list[Row]:
    rows = []
    for path in sorted(places.models().glob("**/*")):
        hidden = any(part.startswith(".") for part in path.relative_to(places.models()).parts)
        if path in own or hidden or not path.is_file():
            continue
        entry = digest.recorded(path) or {}
        if path.suffix == ".part":
            state = "begun; the command that fetches it goes on from here"
        elif path.suffix == ".bad":
            state = "kept aside: its SHA-256 was wrong; never used, you may delete it"
        elif entry.get("from"):
            state = f"not of this rig; checked when fetched from {entry['from']}"
        else:
            state = "not of this rig; not checked"
        name = str(path.relative_to(places.models()))
        rows.append(Row("", name, path.stat().st_size, entry.get("sha256"), state))
    return rows


def _of_rig(file: Wanted) -> Row:
    if not file.path.is_file():
        return Row(file.role, file.name, None, None, f"not here; make {file.target} brings it")
    sha256, state = checked(file, digest.known)
    return Row(file.role, file.name, file.path.stat().st_size, sha256, state)


def checked(file: Wanted, sha256: Callable[[Path], str]) -> tuple[str | None, str]:
    """The digest of a file that is here, as `sha256` gives it, and its state."""
    found = None
    try:
        found = sha256(file.path)
        wanted.check(file)
    except RigError as error:
        return found, f"WRONG: {error}"
    except OSError as error:
        return found, f"cannot be read: {error.strerror}"
    known = wanted.judgement(file)
    return found, f"verified, {known}" if file.is_verified else known
