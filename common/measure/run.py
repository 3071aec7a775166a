"""Run: one dated run directory with its manifest, journal and lock."""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

from common import atomic
from common.errors import RigError
from common.measure import journal
from common.measure.journal import Manifest
from common.measure.summary import hold
from common.rig import Rig

MANIFEST = "manifest.json"
JOURNAL = "samples.jsonl"
SUMMARY = "summary.json"
STARTS = "starts.jsonl"
TELEMETRY = "telemetry.jsonl"
LOCK = "run.lock"
WRITTEN = "written.json"
# In which form each kind of file is written. A file, or a line, that says none is of form 0, from
# before they were told apart: the same but for that.
VERSIONS = {MANIFEST: 1, JOURNAL: 1, STARTS: 1, WRITTEN: 1}
TYPES = {
    MANIFEST: journal.Manifest
    | journal.RepackManifest
    | journal.ClientManifest
    | journal.ImageManifest,
    JOURNAL: journal.Trial | journal.Command | journal.Client | journal.Packed,
    STARTS: journal.Start,
    WRITTEN: journal.Written,
}
ODD = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError,
    ValueError,
)  # fmt: skip
"""what code that reads good files raises on files that do not belong together"""


class DamagedError(RigError):
    """What was read is not as it was written."""


class Run:
    """A run directory that is being written. Use as a context manager: it holds the lock."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._lock: TextIO | None = None

    def __enter__(self) -> "Run":
        try:
            self._lock = (self.folder / LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RigError(f"{self.folder} is being written by another run; wait for it") from None
        except OSError as error:
            _not_written(self.folder / LOCK, error, CONTINUE)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._lock is not None
        self._lock.close()

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def append(self, name: str, line: Mapping[str, Any]) -> None:
        """Add one line to a journal file and sync it to the disk, or raise RigError.

        A line that could not be written whole is taken back, so the journal stays readable.
        """
        path = self.folder / name
        version = {"version": VERSIONS[name]} if name in VERSIONS else {}
        data = (json.dumps({**version, **line}, ensure_ascii=False) + "\n").encode()
        try:
            with path.open("ab", buffering=0) as file:
                before = file.seek(0, os.SEEK_END)
                try:
                    if file.write(data) != len(data):
                        raise OSError("the disk took only part of a line")
                    os.fsync(file.fileno())
                except OSError:
                    os.ftruncate(file.fileno(), before)
                    raise
        except OSError as error:
            _not_written(path, error, CONTINUE)

    def write_manifest(self) -> None:
        """Raises RigError if it cannot be written; then the older one is as it was."""
        path = self.folder / MANIFEST
        try:
            atomic.write(path, json.dumps(self.manifest, indent=2) + "\n")
        except OSError as error:
            _not_written(path, error, CONTINUE)

    def finish(self) -> None:
        self.manifest["ended"] = now()
        self.write_manifest()


CONTINUE = "what was measured before is kept. Make room there, then continue with RESUME=1"


def _not_written(path: Path, error: OSError, fix: str) -> NoReturn:
    raise RigError(f"{path} cannot be written: {error.strerror or error}", fix=fix) from None


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def check(name: str, found: Mapping[str, Any]) -> None:
    """Hold a file of a run, or a line of it, to its type. Raises RigError that says what differs.

    What says no version is of form 0, the same but for that.
    """
    if found.get("version", VERSIONS[name]) != VERSIONS[name]:
        raise RigError(f"{name} is not of version {VERSIONS[name]}, but {found['version']!r}")
    hold(found, TYPES[name])


@contextlib.contextmanager
def fits(folder: Path) -> Iterator[None]:
    """Raises RigError for what figures made from files that do not belong together end in."""
    try:
        yield
    except (OSError, *ODD) as error:
        said = " ".join(str(error).split())[:200]
        raise RigError(
            f"{folder}: manifest and journal do not fit together ({type(error).__name__}: {said})",
            fix="bring the whole folder again, or leave the run out",
        ) from None


def content(path: Path) -> bytes:
    """A file's bytes; OSError for anything that is no regular file, such as a pipe that never
    ends."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError("it is no regular file")
        return file.read()


def read_lines(folder: Path, name: str) -> list[Any]:
    """Lines of a journal file, each as TYPES says. A last line cut off by a crash is left out.

    Raises RigError if another one is damaged, or of a later version than this one knows.
    """
    return [known(line, name, where) for line, where in whole_lines(folder / name)]


def whole_lines(path: Path) -> list[tuple[bytes, str]]:
    """Lines that have an end, each with where it is. Raises RigError if they cannot be read."""
    try:
        *whole, _torn = content(path).split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RigError(f"{path} cannot be read: {error.strerror or error}") from None
    return [(line, f"{path}, line {number}") for number, line in enumerate(whole, 1)]


def read_manifest(folder: Path) -> Manifest:
    """Raises RigError if `folder` is not a run directory that this version can read."""
    path = folder / MANIFEST
    try:
        data = content(path)
    except (OSError, ValueError) as error:
        raise RigError(f"{folder} is not a run directory: {MANIFEST}: {error}") from None
    return cast(Manifest, known(data, MANIFEST, str(path)))


def known(data: bytes, name: str, where: str) -> dict[str, Any]:
    """JSON of a known version. Raises RigError saying where it is if it is newer, and DamagedError
    if it is damaged."""
    try:
        found = parsed(data)
        if not isinstance(found, dict):
            raise ValueError("not a JSON object")
        version = found.get("version", 0)
        if name in VERSIONS and type(version) is int and version > VERSIONS[name]:
            raise RigError(
                f"{where} is of version {version!r}, which this version of the project does "
                "not know; update it"
            )
        if name in VERSIONS:
            _check_form(name, found)
    except ValueError as error:
        raise DamagedError(f"{where} is damaged ({error})", fix=_what_to_do(name, where)) from None
    return found


def _check_form(name: str, found: Mapping[str, Any]) -> None:
    """ValueError if a file, or a line, is not as its type says."""
    try:
        check(name, {**found, "version": found.get("version") or VERSIONS[name]})
    except RigError as error:
        raise ValueError(str(error)) from None


def _what_to_do(name: str, where: str) -> str:
    whole = "bring the whole folder again, or leave the run out"
    if name not in (JOURNAL, STARTS):
        return whole
    folder = Path(where.rpartition(", line ")[0]).parent
    return f"{whole}, or set such lines aside: make report RUN={folder} SET_ASIDE=1"


def parsed(data: bytes) -> Any:
    """JSON as the standard has it: numbers that are, and text that can be written again.

    Raises ValueError.
    """
    try:
        found = json.loads(data, parse_constant=_no_number)
        if b"\\ud" in data.lower():  # half a character may be escaped in it
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


def create(rig: Rig, what: str, manifest: Mapping[str, Any], out: Path | None = None) -> Run:
    """A new run directory, dated today; `-2`, `-3` are added if there is one already.

    It gets its name with its manifest in it: nobody sees one without. Raises RigError if it cannot
    be made.
    """
    head = {"version": VERSIONS[MANIFEST], "what": what, "rig": rig.name}
    whole = {**head, **manifest, "started": now(), "ended": None}
    place = out or rig.runs_folder / f"{datetime.now().date()}-{what}-{rig.hardware}"
    new = place.parent / f".new-{secrets.token_hex(8)}"
    run = Run(new, cast(Manifest, whole))
    try:
        if out is not None and out.exists() and any(out.iterdir()):
            raise RigError(f"{out} is not empty; name another folder, or leave it out")
        new.mkdir(parents=True)
        run.write_manifest()
        run.folder = _placed(new, place, numbered=out is None)
    except OSError as error:
        _not_written(place, error, "make room or give permission there")
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return run


def _placed(new: Path, place: Path, numbered: bool) -> Path:
    """Move a new folder to its place, or to the first number that is free; returns where it is."""
    if not numbered and place.exists():  # empty, and perhaps a link
        (new / MANIFEST).rename(place / MANIFEST)
        return place
    folder, number = place, 2
    while True:
        try:
            return new.rename(folder)
        except OSError:
            if not (numbered and os.path.lexists(folder)):
                raise
        folder, number = place.with_name(f"{place.name}-{number}"), number + 1
