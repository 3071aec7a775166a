"""Where things live outside the tree: engines, sources, models."""

import os
from pathlib import Path

from common.errors import RigError


def cache() -> Path:
    """The cache folder: GEMMA_RIGS_CACHE, else gemma-rigs below the user's cache folder."""
    own = _given("GEMMA_RIGS_CACHE")
    if own is not None:
        return own
    users = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # As its specification says, a relative one does not count.
    return (users if users.is_absolute() else _home() / ".cache") / "gemma-rigs"


def models() -> Path:
    """The models folder, shared by all rigs: MODELS_DIR, else models in the cache."""
    own = _given("MODELS_DIR")
    return cache() / "models" if own is None else own


def private(folder: Path) -> Path:
    """A folder that only this user can enter, made if need be: logs and records hold what others
    wrote to the model. Raises RigError if it cannot be made so."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise cannot_write(folder, error) from None
    return folder


def cannot_write(path: Path, error: OSError) -> RigError:
    """The one line for something in the cache that cannot be written."""
    return RigError(
        f"{path} cannot be written ({error.strerror or error})",
        fix="make room or give permission there, or name another cache with GEMMA_RIGS_CACHE=...",
    )


def model_file(name: str) -> Path:
    """The path of a model file; absolute names stay as they are."""
    return models() / name


def _given(key: str) -> Path | None:
    """The folder that a variable names; None if it is absent. A shell leaves a quoted ~ as it is.

    Raises RigError for a relative one, which would be another folder in every folder.
    """
    text = os.environ.get(key)
    if not text:
        return None
    if text == "~" or text.startswith("~/"):
        return _home() / text[2:]
    path = Path(text)
    if not path.is_absolute():
        raise RigError(f"{key}={text}: expected a path from / or ~/")
    return path


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise RigError("this user has no home folder", fix="set GEMMA_RIGS_CACHE") from None
