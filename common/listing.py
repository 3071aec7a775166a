"""What is in the models folder: a rig's files and the rest, verified or not."""

from dataclasses import dataclass

from common import digest, files, places
from common.errors import RigError
from common.files import Wanted
from common.rig import Rig


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
    return [_of_rig(file) for file in files.wanted(rig)]


def others(rig: Rig) -> list[Row]:
    """Whatever else is in the models folder; nothing is read, only what is on record is said."""
    own = {file.path for file in files.wanted(rig)}
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
        target = "draft" if file.role == "drafter" else "model"
        return Row(file.role, file.name, None, None, f"not here; make {target} brings it")
    size, sha256 = file.path.stat().st_size, None
    try:
        sha256 = digest.known(file.path)
        files.check(file)
    except RigError as error:
        state = f"WRONG: {error}"
    except OSError as error:
        state = f"cannot be read: {error.strerror}"
    else:
        state = f"verified, {files.judgement(file)}" if file.sha256 else files.judgement(file)
    return Row(file.role, file.name, size, sha256, state)
