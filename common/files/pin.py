"""Pins: the full digest and the resolved revision of a rig's files, written into its tpu.env."""

import re
from pathlib import Path

from common import atomic, digest
from common.errors import RigError
from common.files import hub, wanted
from common.files.hub import Progress
from common.files.wanted import Say, Wanted
from common.rig import FILE, Rig


def pin(rig: Rig, say: Say, progress: Progress) -> dict[str, str]:
    """Fetch and check what is not fully pinned, and pin it. Returns the settings that were written.

    Raises RigError if a file cannot be had, or if the hub's file is not the one that is here.
    """
    ours = [key for key in rig.overridden if re.match(r"(MODEL|SPEC_DRAFT)(_|$)", key)]
    if ours:
        raise RigError(
            f"{', '.join(ours)} comes from the environment, and a pin belongs to what "
            f"{rig.folder / FILE} says; leave it out"
        )
    changes: dict[str, str] = {}
    for file in wanted.wanted(rig):
        if file.made_here:
            say(f"{file.role} {file.name}: made here, nothing to pin")
        elif _is_pinned(file):
            say(f"{file.role} {file.name}: pinned already")
        else:
            wanted.fetch(rig, say, progress, (file.role,))
            changes |= _pins(file, say)
    if changes:
        rewrite(rig.folder / FILE, changes)
    return changes


def _is_pinned(file: Wanted) -> bool:
    resolved = re.fullmatch(r"[0-9a-f]{40}", file.revision or "") is not None
    return len(file.sha256 or "") == 64 and (resolved or not file.hub)


def _pins(file: Wanted, say: Say) -> dict[str, str]:
    """The settings that pin a file that is here."""
    sha256 = digest.known(file.path)
    if not file.hub or file.package:
        return {f"{file.key}_SHA256": sha256}
    remote = hub.look(file.on_hub, say)
    if remote.sha256 != sha256 or not remote.commit:
        raise RigError(
            f"{file.path} has SHA-256 {sha256}, but {file.hub} at {file.revision or 'main'} "
            f"declares {remote.sha256 or 'none'}, of commit {remote.commit or 'unknown'}; "
            f"set {file.key}_HF_REVISION to where it came from, or move it away to fetch it anew"
        )
    return {f"{file.key}_HF_REVISION": remote.commit, f"{file.key}_SHA256": sha256}


def rewrite(path: Path, changes: dict[str, str], note: str = "") -> None:
    """Set keys in a tpu.env. Comments, order and line ends stay; a reader sees old or new.

    A key the file lacks goes below the last line whose key begins alike. A `note`, a comment, goes
    above each of them, in place of one that begins alike up to its first colon. Raises RigError if
    the file cannot be written.
    """
    try:
        lines = path.read_bytes().decode().splitlines(keepends=True)
        for key, value in changes.items():
            number = _set(lines, key, value)
            if note:
                _note(lines, number, note)
        atomic.write(path, "".join(lines), sync=True)
    except OSError as error:
        raise RigError(
            f"{path} cannot be written: {error.strerror}; it is as it was. Make room, or mend its "
            "permissions"
        ) from None


def _set(lines: list[str], key: str, value: str) -> int:
    """Returns the number of the key's line."""
    last = len(lines)
    for number, line in enumerate(lines):
        name, is_setting, _old = line.partition("=")
        if name == key:
            lines[number] = f"{key}={value}{_line_end(line)}"
            return number
        if is_setting and name.startswith(key.split("_")[0]):
            last = number + 1
    end = "\n"
    if last:
        end = _line_end(lines[last - 1]) or "\n"
        lines[last - 1] = lines[last - 1].rstrip("\r\n") + end
    lines.insert(last, f"{key}={value}{end}")
    return last


def _note(lines: list[str], number: int, note: str) -> None:
    line = note + (_line_end(lines[number]) or "\n")
    if number and lines[number - 1].startswith(note[: note.index(":") + 1]):
        lines[number - 1] = line
    else:
        lines.insert(number, line)


def _line_end(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]
