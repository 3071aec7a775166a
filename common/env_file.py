"""Env file: changing settings in a rig's tpu.env, with every other line left as it is."""

import re
from pathlib import Path

from common import atomic
from common.errors import RigError


def rewrite(path: Path, changes: dict[str, str], note: str = "") -> None:
    """Set keys in a tpu.env. Comments, order and line ends stay; a reader sees old or new.

    A key the file lacks goes below the last line whose key begins alike. A `note`, a comment, goes
    above each of them, in place of one that begins alike up to its first colon. Raises RigError if
    the file cannot be written.
    """
    try:
        lines = _lines(path.read_bytes().decode())
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


def _lines(text: str) -> list[str]:
    """With their ends: LF or CRLF, as common/grammar.py has it."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


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
