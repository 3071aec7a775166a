"""Where things live outside the tree: engines, sources, models."""

import os
from pathlib import Path


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


def model_file(name: str) -> Path:
    """The path of a model file; absolute names stay as they are."""
    return models() / name
