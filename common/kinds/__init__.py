"""The measurements there are: the one registration. A new one is a folder here and a name below."""

from common.errors import RigError
from common.kinds import (
    accuracy,
    bench_client,
    bench_repack,
    builds,
    cost,
    formats,
    identity,
    longctx,
    speed,
    sweep,
    tune,
)
from common.measure.kind import Kind

# In the order in which pages show them.
KINDS = (
    speed.KIND,
    longctx.KIND,
    sweep.KIND,
    sweep.LONGMIXED,
    bench_client.KIND,
    accuracy.KIND,
    identity.KIND,
    formats.KIND,
    cost.KIND,
    builds.KIND,
    tune.KIND,
    bench_repack.KIND,
)
NAMES = tuple(kind.name for kind in KINDS)


def of(name: str) -> Kind:
    """The measurement of this name. Raises RigError if this version knows none."""
    for kind in KINDS:
        if kind.name == name:
            return kind
    raise RigError(f"there is no measurement {name!r}; there are {', '.join(NAMES)}")
