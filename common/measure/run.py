"""Run: one dated run directory with its manifest, journal and lock."""

import fcntl
import json
import os
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO, cast

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
    MANIFEST: journal.Manifest | journal.RepackManifest | journal.ClientManifest,
    JOURNAL: journal.Trial | journal.Command | journal.Client,
    STARTS: journal.Start,
    WRITTEN: journal.Written,
}
# What may differ between the first part of a run and its continuation.
FREE_TO_CHANGE = {"version", "started", "ended", "wall_s", "host", "overridden", "energy"}


class Run:
    """A run directory that is being written. Use as a context manager: it holds the lock."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._lock: TextIO | None = None

    def __enter__(self) -> "Run":
        self._lock = (self.folder / LOCK).open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RigError(f"{self.folder} is being written by another run; wait for it") from None
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
        with path.open("ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            try:
                if file.write(data) != len(data):
                    raise OSError("the disk took only part of a line")
                os.fsync(file.fileno())
            except OSError as error:
                os.ftruncate(file.fileno(), before)
                raise RigError(
                    f"{path} cannot be written: {error}; what was measured before is kept. "
                    "Make room, then continue with RESUME=1"
                ) from None

    def write_manifest(self) -> None:
        atomic.write(self.folder / MANIFEST, json.dumps(self.manifest, indent=2) + "\n")

    def finish(self) -> None:
        self.manifest["ended"] = now()
        self.write_manifest()


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def check(name: str, found: Mapping[str, Any]) -> None:
    """Hold a file of a run, or a line of it, to its type. Raises RigError that says what differs.

    What says no version is of form 0, the same but for that.
    """
    if found.get("version", VERSIONS[name]) != VERSIONS[name]:
        raise RigError(f"{name} is not of version {VERSIONS[name]}, but {found['version']!r}")
    hold(found, TYPES[name])


def read_lines(folder: Path, name: str) -> list[Any]:
    """Lines of a journal file, each as TYPES says. A last line cut off by a crash is left out.

    Raises RigError if another one is damaged, or of a later version than this one knows.
    """
    path = folder / name
    if not path.is_file():
        return []
    *whole, _torn = path.read_bytes().split(b"\n")
    return [known(line, name, f"{path}, line {number}") for number, line in enumerate(whole, 1)]


def read_manifest(folder: Path) -> Manifest:
    """Raises RigError if `folder` is not a run directory that this version can read."""
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RigError(f"{folder} is not a run directory: {MANIFEST}: {error}") from None
    return cast(Manifest, known(data, MANIFEST, str(path)))


def known(data: bytes, name: str, where: str) -> dict[str, Any]:
    """JSON of a known version. Raises RigError saying where it is if it is damaged, or newer."""
    damaged = "{} is damaged ({}); bring the whole folder again, or leave the run out"
    try:
        found = json.loads(data)
        if not isinstance(found, dict):
            raise ValueError("not a JSON object")
    except ValueError as error:
        raise RigError(damaged.format(where, error)) from None
    version = found.get("version", 0)
    if name in VERSIONS and version not in range(VERSIONS[name] + 1):
        raise RigError(
            f"{where} is of version {version!r}, which this version of the project does "
            "not know; update it"
        ) from None
    if name in VERSIONS and version:  # older ones are read as they are
        try:
            check(name, found)
        except RigError as error:
            raise RigError(damaged.format(where, error)) from None
    return found


def create(rig: Rig, what: str, manifest: Mapping[str, Any], out: Path | None = None) -> Run:
    """A new run directory, dated today; `-2`, `-3` are added if there is one already."""
    if out is not None:
        if out.exists() and any(out.iterdir()):
            raise RigError(f"{out} is not empty; name another folder, or leave it out")
        folder = out
    else:
        base = f"{datetime.now().date()}-{what}-{rig.hardware}"
        folder, number = rig.runs_folder / base, 2
        while folder.exists():
            folder, number = rig.runs_folder / f"{base}-{number}", number + 1
    folder.mkdir(parents=True, exist_ok=True)
    head = {"version": VERSIONS[MANIFEST], "what": what, "rig": rig.name}
    whole = {**head, **manifest, "started": now(), "ended": None}
    run = Run(folder, cast(Manifest, whole))
    run.write_manifest()
    return run


def resume(rig: Rig, what: str, manifest: Mapping[str, Any], out: Path | None = None) -> Run:
    """The last unfinished run of this kind, if it was made under the same settings.

    Raises RigError if there is none, or if a setting differs (naming it).
    """
    folder = out or _last_unfinished(rig, what)
    if folder is None:
        raise RigError(f"{rig.runs_folder} has no unfinished {what} run; leave RESUME=1 out")
    old = read_manifest(folder)
    if old["ended"]:
        raise RigError(f"{folder} is finished; leave RESUME=1 out to measure again")
    new = json.loads(json.dumps({"what": what, "rig": rig.name, **manifest}))
    for key in sorted((new.keys() | old.keys()) - FREE_TO_CHANGE):
        if old.get(key) != new.get(key):
            raise RigError(
                f"{folder} was started under other settings: {_difference(key, old, new)}; "
                "measure anew without RESUME=1"
            )
    _drop_torn_lines(folder)
    return Run(folder, old)


def _difference(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The first value that differs below `key`, by the last name on the way to it."""
    before, after = old.get(key), new.get(key)
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                return _difference(name, before, after)
    return f"{key} was {before!r}, is now {after!r}"


def _last_unfinished(rig: Rig, what: str) -> Path | None:
    pattern = re.compile(rf"\d{{4}}-\d\d-\d\d-{re.escape(what)}-{rig.hardware}(-\d+)?")
    folders = [path for path in rig.runs_folder.glob("*") if pattern.fullmatch(path.name)]
    unfinished = [path for path in folders if not read_manifest(path)["ended"]]
    return max(unfinished, key=lambda path: read_manifest(path)["started"], default=None)


def _drop_torn_lines(folder: Path) -> None:
    for name in (JOURNAL, STARTS, TELEMETRY):
        path = folder / name
        if path.is_file():
            data = path.read_bytes()
            os.truncate(path, data.rfind(b"\n") + 1)
