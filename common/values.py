"""Values: what a setting may say that names a file, or a place that something is fetched from.

Each raises ValueError with what was expected.
"""

import re
from pathlib import Path


def holds_secret(value: str) -> bool:
    """Whether an address in it names a user or carries a token; the user git is of no interest."""
    return any(user != "git" for user in re.findall(r"//([^/]*)@", value))


def relative_or_absolute(value: str) -> str:
    if ".." in Path(value).parts:
        raise ValueError("a file name, or an absolute path, without '..'")
    return value


def model_file(value: str) -> str:
    split = re.search(r"-[0-9]{5}-of-([0-9]{5})\.gguf$", value)
    if split and int(split[1]) > 1:
        raise ValueError(
            "one whole file: a rig pins, fetches and counts one, and this is a part of "
            f"{int(split[1])}; join them with llama.cpp's llama-gguf-split --merge"
        )
    return relative_or_absolute(value)


def model_files(value: str) -> tuple[str, ...]:
    return tuple(model_file(part) for part in value.split(",") if part)


def package(value: str) -> str:
    # Nothing else that pip understands: an option, a folder, or an address whose code it would run.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.+]*", value):
        raise ValueError("a package and its version, such as name==1.0.0")
    return value


def version(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+]*", value):
        raise ValueError("the version of a package, such as 11434.0.0")
    return value


def repository(value: str) -> str:
    address = re.fullmatch(r"(?:https|http|ssh|file)://.+|/.*|[\w.-]+@[\w.-]+:.+", value)
    if not address or value.startswith("-"):
        raise ValueError("the address of a git repository, such as https://github.com/OWNER/NAME")
    return value


def commit(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{7,40}", value):
        raise ValueError("a commit in lower-case hex, its first 7 digits at least, better all 40")
    return value
