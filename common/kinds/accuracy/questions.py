"""Questions: where the tests' files lie on this host, and how one comes from the web."""

from collections.abc import Callable
from pathlib import Path

import requests

from common import places
from common.errors import RigError

FETCH_S = 60.0


def folder() -> Path:
    return places.cache() / "questions"


def fetch(url: str, path: Path, check: Callable[[Path], object], title: str, setting: str) -> None:
    """Fetch a test's file, which is put in its place once `check` has not raised.

    Raises RigError, with what to do instead, if it cannot be had.
    """
    part = path.with_name(path.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        reply = requests.get(url, timeout=FETCH_S)
        reply.raise_for_status()
    except requests.RequestException as error:
        reason = type(error).__name__ if error.response is None else error
        raise RigError(
            f"{title} could not be fetched from {url} ({reason}); bring the file to this host "
            f"by other means and name it: make accuracy {setting}=/path/to/{Path(url).name}"
        ) from None
    part.write_bytes(reply.content)
    check(part)
    part.replace(path)
