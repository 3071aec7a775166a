"""Where things live outside the tree: engines, sources, models."""

import os
from pathlib import Path

from common.errors import RigError


def cache() -> Path:
    """The cache folder: GEMMA_RIGS_CACHE, else gemma-rigs below the user's cache folder."""
    own = os.environ.get("GEMMA_RIGS_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gemma-rigs"


def models() -> Path:
    """The models folder, shared by all rigs: MODELS_DIR, else models in the cache."""
    own = os.environ.get("MODELS_DIR")
    return Path(own) if own else cache() / "models"


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
