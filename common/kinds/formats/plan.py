"""Formats: the same drafter as exact Q4_0, Q8_0 and bf16, and others beside it."""

from pathlib import Path
from typing import Any

from common import places
from common.digest import sha256
from common.errors import RigError
from common.files.wanted import OTHERS, other_name
from common.known import chain
from common.known import files as known_files
from common.measure.arms import rounds, short_cells, short_prompts
from common.measure.kind import Tools
from common.measure.plan import Arm, Plan
from common.measure.rows import BASELINE
from common.rig import Rig


def files(rig: Rig) -> dict[str, str]:
    """Arm -> drafter file: the rig's own, the same in the other formats, FORMATS_EXTRA's.

    The known-answer pair's files are made where missing. Raises RigError for a rig without a
    drafter file, a drafter whose name does not say q4_0, and a file that is missing.
    """
    own = rig.spec_draft_model
    if not rig.drafts or not rig.needs_drafter or own is None:
        raise RigError(f"{rig.name}: no drafter to compare formats of; set SPEC_DRAFT_MODEL")
    if "-q4_0" not in Path(own).name:
        raise RigError(f"SPEC_DRAFT_MODEL={own}: expected -q4_0 in its name, to name the others by")
    found = {"Q4_0": own}
    for kind in OTHERS:
        found[kind.upper()] = other_name(own, kind)
    for name in rig.formats_extra:
        found[Path(name).stem] = name
    if Path(own).name == chain.DRAFTER_NAME:
        _make_known(own)
    for arm, name in found.items():
        if not places.model_file(name).is_file():
            raise RigError(
                f"the {arm} drafter {places.model_file(name)} is missing; make repack writes the "
                "Q8_0 and BF16 files, those in FORMATS_EXTRA are yours to bring"
            )
    return found


def _make_known(own: str) -> None:
    for kind in OTHERS:
        path = places.model_file(other_name(own, kind))
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            known_files.write_drafter(path, chain.make_chain(), kind)


def plan(rig: Rig, quick: bool = False) -> Plan:
    """Speed's six prompts, four rounds and the drift check; quick as speed's."""
    drafters = files(rig)
    arms = [Arm(BASELINE, {"SPEC_TYPE": ""})]
    arms += [Arm(arm, {"SPEC_DRAFT_MODEL": name}) for arm, name in drafters.items()]
    inputs = {"drafters": {arm: _describe(name) for arm, name in drafters.items()}}
    return Plan(
        "formats",
        arms,
        short_cells(rig, quick),
        rounds(rig, quick),
        quick,
        inputs=inputs,
        prompts=short_prompts(rig),
    )


def _describe(name: str) -> dict[str, Any]:
    path = places.model_file(name)
    return {"name": path.name, "size": path.stat().st_size, "sha256": sha256(path)}


def planned(rig: Rig, tools: Tools) -> tuple[Rig, Plan]:
    tools.engine(rig)  # the rig's own files first: the plan notes their digests
    return rig, plan(rig, tools.quick)
