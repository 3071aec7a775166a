"""Formats: the same drafter as exact Q4_0, Q8_0 and bf16, and others beside it."""

from pathlib import Path
from typing import Any

from common import places
from common.digest import sha256
from common.errors import RigError
from common.files.wanted import OTHERS, other_name
from common.known import chain
from common.known import files as known_files
from common.measure.arms import GREEDY, QUICK_TOKENS, TOKENS
from common.measure.kind import Tools
from common.measure.plan import Arm, Cell, Plan, Round
from common.measure.rows import BASELINE
from common.measure.texts import SIX, prompts
from common.rig import Rig
from common.serving import client


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
    """Speed's six prompts, three greedy rounds and the drift check; quick as speed's."""
    texts = prompts(SIX)
    names = list(texts)[: 3 if quick else None]
    tokens = QUICK_TOKENS if quick else TOKENS
    cells = [Cell(name, [client.chat(texts[name], tokens)]) for name in names]
    rounds = [Round(f"greedy-{i + 1}", "greedy", GREEDY) for i in range(1 if quick else 3)]
    rounds.append(Round("drift", "drift", GREEDY))
    drafters = files(rig)
    arms = [Arm(BASELINE, {"SPEC_TYPE": ""})]
    arms += [Arm(arm, {"SPEC_DRAFT_MODEL": name}) for arm, name in drafters.items()]
    inputs = {"drafters": {arm: _describe(name) for arm, name in drafters.items()}}
    return Plan("formats", arms, cells, rounds, quick, inputs=inputs, prompts=SIX)


def _describe(name: str) -> dict[str, Any]:
    path = places.model_file(name)
    return {"name": path.name, "size": path.stat().st_size, "sha256": sha256(path)}


def planned(rig: Rig, tools: Tools) -> tuple[Rig, Plan]:
    tools.engine(rig)  # the rig's own files first: the plan notes their digests
    return rig, plan(rig, tools.quick)
