"""Sweep and longmixed: how many requests at once until the drafter loses?"""

from common.kinds.sweep import load
from common.measure.kind import Kind

SWEEP = Kind(
    "sweep",
    "how many requests at once until the drafter loses? per-slot or shared cache?",
    __name__,
    "SWEEP_",
    plan="sweep_planned",
    schema_version=2,
    section=True,
    speed=load.speed,
    paired=True,
    depth_and_load=True,
    speaks_of=("many",),
)
LONGMIXED = Kind(
    "longmixed",
    "the same with long, mixed requests",
    __name__,
    "LONGMIXED_",
    plan="longmixed_planned",
    schema_version=2,
    section=True,
    speed=load.speed,
    paired=True,
    depth_and_load=True,
    speaks_of=("documents", "many"),
)
KINDS = (SWEEP, LONGMIXED)
