"""The measurements there are: the one registration. A new one is a folder here and a line below."""

from importlib import import_module

from common.errors import RigError
from common.measure.kind import Kind

# In the order in which pages show them.
FOLDERS = (
    "speed",
    "longctx",
    "sweep",
    "bench_client",
    "accuracy",
    "identity",
    "formats",
    "cost",
    "builds",
    "tune",
    "bench_repack",
    "image_check",
)
KINDS: tuple[Kind, ...] = tuple(
    kind for folder in FOLDERS for kind in import_module(f"common.kinds.{folder}").KINDS
)
NAMES = tuple(kind.name for kind in KINDS)


def of(name: str) -> Kind:
    """The measurement of this name. Raises RigError if this version knows none."""
    for kind in KINDS:
        if kind.name == name:
            return kind
    raise RigError(f"there is no measurement {name!r}; there are {', '.join(NAMES)}")
