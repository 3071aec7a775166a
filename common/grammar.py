"""Grammar: the lines of a tpu.env, and what each kind of value may be.

What it lets through reads the same in make, docker compose, bash and Python; scripts/tpu_env.sh is
the same for the shell.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common.errors import RigError, did_you_mean

LINE = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)")
# What reads the same in make, docker compose, bash and Python.
SAFE_VALUE = re.compile(r"[A-Za-z0-9._/:+,=@-]*")
SPEC_TYPES = (
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "draft-dflash",
    "draft-dspark",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
)
TUNE_FOR = ("chat", "documents", "many")
TUNE_LEVERS = ("draft", "types", "p-min", "batch", "kv-layout", "kv-type")
ENGINES = ("embedded", "source")
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
Parser = Callable[[str], Any]


def lines(path: Path) -> list[str]:
    """The lines of a tpu.env without their ends, LF or CRLF. Nothing else ends a line: make, bash
    and docker compose do not know the others that Unicode has.

    Raises RigError if it cannot be read.
    """
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise RigError(f"{path}: cannot be read: {error}") from None
    return [line.removesuffix("\r") for line in text.split("\n")]


def settings(path: Path) -> Iterator[tuple[str, str, int]]:
    """Key, value and line number of each setting. Raises RigError for any other kind of line."""
    for number, line in enumerate(lines(path), 1):
        if not line.strip(" \t") or line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        if not match:
            raise RigError(f"{path}, line {number}: {line!r} is not KEY=value and not a # comment")
        yield match[1], match[2], number


def check_safe(key: str, value: str, where: str) -> None:
    """Raise RigError for a value that shells, make and compose would read otherwise."""
    if not SAFE_VALUE.fullmatch(value):
        raise RigError(
            f"{where}: {key}={value!r} holds a space, quote or shell character; "
            "values may only use letters, digits and . _ / : + , = @ -"
        )


def plain(value: str) -> str:
    return value


def address(value: str) -> str:
    """Where a server listens. A host's name is none: some shells export one as HOST."""
    try:
        return value if value == "localhost" else str(ipaddress.ip_address(value))
    except ValueError:
        raise ValueError("localhost or an address, such as 127.0.0.1 or ::1") from None


def origin(value: str) -> str:
    """Whose pages may read a server's replies; llama-server takes one origin, or this word."""
    if value != "localhost" and not re.fullmatch(r"https?://[A-Za-z0-9.-]+(:\d{1,5})?", value):
        raise ValueError("localhost, or one origin such as https://chat.example.org")
    return value


def version(value: str) -> str:
    if not re.fullmatch(r"\d{1,4}(\.\d{1,4}){1,2}", value):
        raise ValueError("a version such as 13.4.1")
    return value


def whole(low: int, high: int) -> Parser:
    def parse(value: str) -> int:
        if not re.fullmatch(r"\d{1,9}", value) or not low <= int(value) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(value)

    return parse


def one_of(*names: str) -> Parser:
    def parse(value: str) -> str:
        if value not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return value

    return parse


def some_of(*names: str) -> Parser:
    def parse(value: str) -> tuple[str, ...]:
        parts = tuple(value.split(","))
        if not set(parts) <= set(names):
            raise ValueError(f"some of {', '.join(names)}, joined by commas")
        return parts

    return parse


def numbers(value: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", value):
        raise ValueError("whole numbers joined by commas, such as 1,2,3")
    return tuple(int(part) for part in value.split(","))


def shares(value: str) -> tuple[float, ...]:
    try:
        parts = tuple(float(part) for part in value.split(","))
    except ValueError:
        parts = ()
    if not parts or not all(0 < part < 1 for part in parts):
        raise ValueError("shares between 0 and 1 joined by commas, such as 0.5,0.6")
    return parts


def share(value: str) -> float:
    parts = shares(value)
    if len(parts) > 1:
        raise ValueError("one share between 0 and 1, such as 0.5")
    return parts[0]


def listed(value: str) -> tuple[str, ...]:
    return tuple(part for part in value.split(",") if part)


def two(value: str) -> tuple[str, ...]:
    parts = listed(value)
    if len(parts) != 2:
        raise ValueError("two arms joined by a comma, such as none,n=2")
    return parts


def spec_type(value: str) -> str:
    for part in value.split(","):
        if part not in SPEC_TYPES:
            hint = did_you_mean(part, SPEC_TYPES)
            known = ", ".join(SPEC_TYPES)
            raise ValueError(f"llama.cpp draft types ({known}){hint and '; ' + hint}")
    return value


def spec_types(value: str) -> tuple[str, ...]:
    return tuple(spec_type(part.replace("+", ",")) for part in value.split(","))


def digest(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{16,64}", value):
        raise ValueError("a SHA-256 in lower-case hex, or at least its first 16 digits")
    return value
