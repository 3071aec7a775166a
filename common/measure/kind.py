"""Kind: what a measurement is to everything else: make, MCP, reports, compare, the map, jobs.

One folder below common/kinds holds one (or two that share most). Its `__init__.py` has the record
in KINDS, and common/kinds/__init__.py names it; no other list of measurements is kept, but for what
one of them alone needs (scripts/lists.py). What a kind does stands in modules beside its record,
which are loaded when they are used: what all of them need together takes a second to load.

plan.py     planned(rig, tools): the rig as it is served for this, and the Plan
summary.py  summarise(folder): every figure of the report, from the run directory alone
report.py   render(summary, manifest, folder), answer(summary, manifest)
schema.py   Summary: what summary.json holds but its version, as types; nothing else is let through
rows.py     rows(summary, manifest): its figures for compare; place_of(cell), where it has places
section.py  section(found): its part of the compare page
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from common.engines import Engine
from common.errors import RigError
from common.measure.journal import Cell, Manifest
from common.measure.plan import Plan
from common.measure.quantities import Row
from common.measure.rows import Speed, decode_speed
from common.measure.summary import hold
from common.measure.texts import Tokenizer
from common.rig import Rig

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Tools:
    """What a plan may ask of whoever measures."""

    quick: bool
    engine: Callable[[Rig], Engine]
    """the engine for a rig, built or fetched if need be, with the rig's files beside it"""
    other_engine: Callable[[Rig], Engine]
    """another engine, without files"""
    with_tokenizer: Callable[[Rig, Callable[[Tokenizer], Plan]], Plan]
    """make a plan that must count tokens, with the rig's own server running meanwhile"""
    say: Callable[[str], None]
    steps: Callable[[int, str], AbstractContextManager[Callable[[int], object]]]
    """progress of something long of so many steps, which are told to what it gives"""


@dataclass(frozen=True)
class Kind:
    """One measurement. Public names of its modules are in the head of this file."""

    name: str
    """as in make, in run directories and to an MCP client"""
    help: str
    """what it answers, in a line"""
    package: str
    """the package its modules are in: `__name__` of its `__init__.py`"""
    prefix: str
    """how its keys in tpu.env begin"""
    plan: str = "planned"
    """the function of plan.py that makes the plan"""
    schema_version: int = 1
    """of its summary: raised when schema.py no longer takes an older one, which is then not read"""
    has_rows: bool = True
    """False: there are no figures of it to set side by side, and compare shows its answer only"""
    section: bool = False
    """whether the compare page has a part of its own for it"""
    speed: Speed = field(default=decode_speed)
    """how the speed of a trial is read"""
    paired: bool = False
    """whether two runs of it can be compared cell by cell"""
    quick: bool = True
    """whether it has a quick form (QUICK=1)"""
    of_rig: bool = True
    """whether it is a target of every rig; else of the project, with a script of its own"""
    depth_and_load: bool = False
    """whether the map of depth and requests at once draws on it"""
    speaks_of: tuple[str, ...] = ()
    """the workloads (of TUNE_FOR) that its speed-ups say something about"""

    def part(self, name: str) -> ModuleType:
        """One of its modules."""
        return import_module(f"{self.package}.{name}")

    def planned(self, rig: Rig, tools: Tools) -> tuple[Rig, Plan]:
        """The rig as it is served for this, and the plan. Raises RigError if it cannot be made."""
        rig, plan = getattr(self.part("plan"), self.plan)(rig, tools)
        return rig, plan

    def summarise(self, folder: Path) -> dict[str, Any]:
        return {"schema": self.schema_version, **self.part("summary").summarise(folder)}

    def render(self, summary: Summary, manifest: Manifest, folder: Path) -> str:
        """REPORT.md as text; draws its figures into the folder."""
        return str(self.part("report").render(summary, manifest, folder))

    def answer(self, summary: Summary, manifest: Manifest) -> str:
        """The report's answer in a sentence or two."""
        return str(self.part("report").answer(summary, manifest))

    def figures(self, summary: Summary, manifest: Manifest) -> list[Row]:
        """Its figures for compare, a row each; none for a kind without."""
        if not self.has_rows:
            return []
        found: Iterable[Row | None] = self.part("rows").rows(summary, manifest)
        return [row for row in found if row is not None]

    def place_of(self, cell: Cell) -> str:
        """Where a cell of the manifest belongs: the place its figures are given for."""
        place = getattr(self.part("rows"), "place_of", None) if self.has_rows else None
        return "" if place is None else str(place(cell))

    def check(self, summary: Summary) -> None:
        """Hold a summary to schema.py's types. Raises RigError that says where it differs."""
        if (summary.get("schema"), summary.get("what")) != (self.schema_version, self.name):
            raise RigError(f"it is no summary of {self.name} of version {self.schema_version}")
        told = {key: value for key, value in summary.items() if key != "schema"}
        hold(told, self.part("schema").Summary)
