"""Accuracy: which arms and questions `make accuracy` asks. The scores are in scores.py."""

import difflib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import engines
from common.errors import RigError
from common.kinds.accuracy import questions
from common.kinds.accuracy.tests import bfcl, gsm8k
from common.measure.arms import GREEDY
from common.measure.kind import Tools
from common.measure.plan import Arm, Cell, Plan, Round
from common.measure.texts import prompts
from common.rig import KEYS, Rig
from common.serving import client

PROMPTS = Path(__file__).with_name("prompts.yaml")

# Longest reply in tokens. One that is cut off there is counted as truncated.
TOKENS = {"gsm8k": 1024, "bfcl": 512}
PARTS = 4  # each arm goes first in half of them, so that drift falls on both alike
CONTROL = 20  # questions of each test that the first arm is asked again at the end
DEATHS_ALLOWED = 5
PUBLISHED_BFCL = "+".join(bfcl.SHA256.values())
QUESTIONS = "questions.jsonl"
"""what scoring needs of each question asked, in the run directory"""


def served(rig: Rig) -> Rig:
    """The rig with a slot for every question that is asked at once."""
    if rig.accuracy_parallel <= (rig.parallel or 1):
        return rig
    return rig.variant({"PARALLEL": str(rig.accuracy_parallel)})


def plan(rig: Rig) -> Plan:
    """Every question of both tests, greedy, in both arms; then the control.

    The questions are cut into four parts and the arms take turns in going first. The control is
    the drift round: the first arm again, on the first questions of each test.
    """
    template = prompts(PROMPTS)["gsm8k"]
    sums, sums_sha256 = questions.load_gsm8k()
    calls, calls_sha256 = questions.load_bfcl()
    sums, calls = sums[: rig.accuracy_limit], calls[: rig.accuracy_limit]
    rows: list[dict[str, Any]] = [
        {"id": one.id, "test": "gsm8k", "answer": str(one.answer)} for one in sums
    ]
    rows += [
        {
            "id": one.id,
            "test": "bfcl",
            "function": bfcl.without_words(one.function),
            "accepted": one.accepted,
        }
        for one in calls
    ]
    asked = [_body("gsm8k", gsm8k.messages(one, template)) for one in sums]
    cells = _cells(rig, "gsm8k", [one.id for one in sums], asked)
    asked = [_body("bfcl", one.messages, tools=[bfcl.tool(one)]) for one in calls]
    cells += _cells(rig, "bfcl", [one.id for one in calls], asked)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return Plan(
        "accuracy",
        arms(rig),
        cells,
        _rounds(cells),
        mark_failures=True,
        inputs={"gsm8k_sha256": sums_sha256, "bfcl_sha256": calls_sha256},
        attached={QUESTIONS: text},
        deaths_allowed=DEATHS_ALLOWED,
        prompts=PROMPTS,
    )


def _body(test: str, messages: list[dict[str, str]], **more: Any) -> dict[str, Any]:
    return {**client.chat("", TOKENS[test]), "messages": messages, **more}


def _cells(rig: Rig, test: str, ids: Sequence[str], bodies: Sequence[dict[str, Any]]) -> list[Cell]:
    """One cell for each question, or for as many as are asked at once."""
    step = rig.accuracy_parallel
    cells = []
    for start in range(0, len(ids), step):
        some = list(ids[start : start + step])
        name = some[0] if len(some) == 1 else f"{some[0]} to {some[-1]}"
        cells.append(Cell(name, bodies[start : start + step], {"test": test, "questions": some}))
    return cells


def _rounds(cells: Sequence[Cell]) -> list[Round]:
    names: dict[str, list[str]] = {}
    for cell in cells:
        names.setdefault(cell.about["test"], []).append(cell.name)
    rounds = []
    for part in range(PARTS):
        some = {
            name
            for own in names.values()
            for name in own[len(own) * part // PARTS : len(own) * (part + 1) // PARTS]
        }
        if some:
            rounds.append(Round(f"part-{part + 1}", "greedy", GREEDY, only=frozenset(some)))
    again = {name for own in names.values() for name in own[:CONTROL]}
    return [*rounds, Round("control", "drift", GREEDY, only=frozenset(again))]


def arms(rig: Rig) -> list[Arm]:
    """The two arms of ACCURACY_ARMS; without it, no drafter and the rig as it is.

    Raises RigError for an arm that cannot be read, or two that start the same server.
    """
    if rig.accuracy_arms:
        found = [arm(rig, text) for text in rig.accuracy_arms]
    else:
        name = f"n={rig.spec_draft_n_max}" if rig.needs_drafter else str(rig.spec_type)
        found = [arm(rig, "none"), Arm(name.replace(",", "+"), {})]
    first, second = (engines.flags(rig.variant(one.changes)) for one in found)
    if first == second:
        raise RigError(
            f"{rig.name}: {found[0].name} and {found[1].name} are the same server, so there is "
            "nothing to compare; set ACCURACY_ARMS, such as none,n=2"
        )
    return found


def arm(rig: Rig, text: str) -> Arm:
    """Read one arm: none, rig, or changes of the rig joined by colons.

    A change is n=2 (the draft length) or any KEY=value of tpu.env, with + for a comma inside the
    value: n=2:SPEC_DRAFT_MODEL=other.gguf. Raises RigError.
    """
    if text == "none":
        return Arm(text, {"SPEC_TYPE": ""})
    if text == "rig":
        return Arm(text, {})
    changes, names = {}, []
    for part in text.split(":"):
        key, equals, value = part.partition("=")
        key = "SPEC_DRAFT_N_MAX" if key == "n" else key
        if not equals or key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, 1)
            raise RigError(
                f"ACCURACY_ARMS: {part!r} in {text!r} is no change; expected none, rig, n=2 or a "
                f"KEY=value of tpu.env{f' (did you mean {near[0]}?)' if near else ''}"
            )
        changes[key] = value.replace("+", ",") if key == "SPEC_TYPE" else value
        # A path would make a strange name for an arm and its log.
        names.append(f"{part.partition('=')[0]}={Path(value).name}")
    rig.variant(changes)
    return Arm(":".join(names), changes)


def planned(rig: Rig, _tools: Tools) -> tuple[Rig, Plan]:
    rig = served(rig)
    return rig, plan(rig)
