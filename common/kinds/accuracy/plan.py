"""Accuracy: which arms and questions `make accuracy` asks. The scores are in scores.py."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import engines
from common.errors import RigError, did_you_mean
from common.kinds.accuracy import tests
from common.kinds.accuracy.test import PROMPTS, Question, Test
from common.measure.arms import GREEDY
from common.measure.kind import Tools
from common.measure.plan import Arm, Cell, Plan, Round
from common.rig import KEYS, Rig
from common.serving import client

PARTS = 4  # each arm goes first in half of them, so that drift falls on both alike
CONTROL = "control"
ASKED_AGAIN = 20  # questions of each test that the control asks the first arm again
DEATHS_ALLOWED = 5
QUESTIONS = "questions.jsonl"
"""what scoring needs of each question asked, in the run directory"""


def served(rig: Rig) -> Rig:
    """The rig with a slot for every question that is asked at once."""
    if rig.accuracy_parallel <= (rig.parallel or 1):
        return rig
    return rig.variant({"PARALLEL": str(rig.accuracy_parallel)})


def plan(rig: Rig) -> Plan:
    """Every question of every test, greedy, in both arms; then the control.

    The questions are cut into four parts and the arms take turns in going first. The control is
    the drift round: the first arm again, on the first questions of each test. Raises RigError for
    questions or arms that cannot be asked.
    """
    lines: list[dict[str, Any]] = []
    cells: list[Cell] = []
    digests = {}
    for test in tests.TESTS:
        questions, digests[test.digest_key] = test.load()
        questions = questions[: rig.accuracy_limit]
        lines += [{"id": one.id, "test": test.name, **test.keep(one)} for one in questions]
        cells += _cells(rig, test, questions)
    _check_ids([line["id"] for line in lines])
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return Plan(
        "accuracy",
        arms(rig),
        cells,
        _rounds(cells),
        mark_failures=True,
        inputs=digests,
        attached={QUESTIONS: text},
        deaths_allowed=DEATHS_ALLOWED,
        prompts=PROMPTS,
    )


def _check_ids(ids: Sequence[str]) -> None:
    """Replies are told apart by the ids alone, and a file of one's own may hold any."""
    name, times = Counter(ids).most_common(1)[0] if ids else ("", 1)
    if times > 1:
        raise RigError(f"{times} questions have the id {name}; give each one of its own")


def _cells(rig: Rig, test: Test[Any], questions: Sequence[Question]) -> list[Cell]:
    """One cell for each question, or for as many as are asked at once."""
    step = rig.accuracy_parallel
    cells = []
    for start in range(0, len(questions), step):
        some = questions[start : start + step]
        ids = [one.id for one in some]
        name = ids[0] if len(ids) == 1 else f"{ids[0]} to {ids[-1]}"
        bodies = [{**client.chat("", test.tokens), **test.ask(one)} for one in some]
        cells.append(Cell(name, bodies, {"test": test.name, "questions": ids}))
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
    again = {name for own in names.values() for name in own[:ASKED_AGAIN]}
    return [*rounds, Round(CONTROL, "drift", GREEDY, only=frozenset(again))]


def arms(rig: Rig) -> list[Arm]:
    """The two arms of ACCURACY_ARMS; without it, no drafter and the rig as it is.

    Raises RigError for an arm that cannot be read, or two that start the same server.
    """
    if rig.accuracy_arms:
        both = [arm(rig, text) for text in rig.accuracy_arms]
    else:
        name = f"n={rig.spec_draft_n_max}" if rig.needs_drafter else str(rig.spec_type)
        both = [arm(rig, "none"), Arm(name.replace(",", "+"), {})]
    first, second = (engines.flags(rig.variant(one.changes)) for one in both)
    if first == second:
        raise RigError(
            f"{rig.name}: {both[0].name} and {both[1].name} are the same server, so there is "
            "nothing to compare; set ACCURACY_ARMS, such as none,n=2"
        )
    return both


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
            near = did_you_mean(key, KEYS)
            raise RigError(
                f"ACCURACY_ARMS: {part!r} in {text!r} is no change; expected none, rig, n=2 or a "
                f"KEY=value of tpu.env{f' ({near})' if near else ''}"
            )
        changes[key] = value.replace("+", ",") if key == "SPEC_TYPE" else value
        # A path would make a strange name for an arm and its log.
        names.append(f"{part.partition('=')[0]}={Path(value).name}")
    rig.variant(changes)
    return Arm(":".join(names), changes)


def planned(rig: Rig, _tools: Tools) -> tuple[Rig, Plan]:
    rig = served(rig)
    return rig, plan(rig)
