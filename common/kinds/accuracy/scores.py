"""Scores: the verdict on every stored reply, and what the two arms make of the questions.

All of it is a pure function of the run directory: no model, no network.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from common.kinds.accuracy import outcomes
from common.kinds.accuracy import plan as accuracy
from common.kinds.accuracy.outcomes import StoredReply
from common.kinds.accuracy.tests import bfcl, gsm8k
from common.measure import run

# The scores of each test. GSM8K always has both.
SCORES = {"gsm8k": ("strict", "flexible"), "bfcl": ("call",)}
SCORES_FILE = "scores.jsonl"
CHANGED_FILE = "changed.jsonl"
CONTROL = "control"
Line = dict[str, Any]


def read_questions(folder: Path) -> dict[str, Line]:
    """Question id -> its line of questions.jsonl, in the order asked."""
    return {line["id"]: line for line in run.read_lines(folder, accuracy.QUESTIONS)}


@dataclass(frozen=True)
class Answer:
    """One stored reply with its verdict."""

    question: str
    test: str
    arm: str
    round: str
    outcome: str
    read: Mapping[str, str | None]
    """per score what was read: the number, or what is wrong with the call"""
    right: Mapping[str, bool]
    sample: Mapping[str, Any] | None
    """the reply; None where the request failed"""

    @property
    def text(self) -> str | None:
        """What two replies must share to be equal: text, reasoning and calls."""
        if self.sample is None:
            return None
        parts = [self.sample[key] for key in ("content", "reasoning", "tool_calls")]
        return json.dumps(parts, ensure_ascii=False)

    def to_json(self) -> Line:
        names = ("question", "test", "arm", "round", "outcome", "read", "right")
        return {name: getattr(self, name) for name in names}


def answers(folder: Path) -> list[Answer]:
    """Every stored reply of a run with its verdict, in the journal's order."""
    questions = read_questions(folder)
    cells = run.read_manifest(folder)["plan"]["cells"]
    found = []
    for trial in run.read_lines(folder, run.JOURNAL):
        ids = cells[trial["cell"]]["questions"]
        samples = trial["samples"] or [{"error": trial["failed"]}] * len(ids)
        for name, sample in zip(ids, samples, strict=True):
            question = questions[name]
            found.append(
                Answer(
                    name,
                    question["test"],
                    trial["arm"],
                    trial["round"],
                    *verdict(question, stored(sample)),
                    sample=None if sample["error"] else sample,
                )
            )
    return found


Pair = tuple[Answer, Answer]


def pairs(found: Iterable[Answer], arms: Sequence[str]) -> dict[str, Pair]:
    """Question -> its answer in the first and in the second arm, where both were asked."""
    by_arm: dict[str, dict[str, Answer]] = {arm: {} for arm in arms}
    for answer in found:
        if answer.round != CONTROL:
            by_arm[answer.arm][answer.question] = answer
    first, second = by_arm.values()
    return {name: (first[name], second[name]) for name in first if name in second}


def stored(sample: Mapping[str, Any]) -> StoredReply:
    """A sample of the journal as the scorers read it."""
    return StoredReply(
        content=sample.get("content") or "",
        reasoning_content=sample.get("reasoning") or "",
        finish_reason=sample.get("finish_reason"),
        tool_calls=sample.get("tool_calls") or (),
        error=sample.get("error"),
    )


def verdict(
    question: Mapping[str, Any], reply: StoredReply
) -> tuple[str, dict[str, str | None], dict[str, bool]]:
    """The outcome, and for each score of the test what was read and whether it is right."""
    if question["test"] == "gsm8k":
        score = gsm8k.score(reply.content)
        numbers = {name: getattr(score, name) for name in SCORES["gsm8k"]}
        answer = Fraction(question["answer"])
        return (
            outcomes.classify(reply).value,
            {name: _written(number) for name, number in numbers.items()},
            {name: number == answer for name, number in numbers.items()},
        )
    asked = bfcl.Question(question["id"], [], question["function"], question["accepted"])
    checked = bfcl.check_reply(asked, reply.tool_calls)
    outcome = outcomes.classify(reply, [asked.tool_name, asked.name])
    return outcome.value, {"call": checked.error_type}, {"call": checked.valid}


def _written(number: Fraction | None) -> str | None:
    return None if number is None else str(number)


def changed(
    found: Iterable[Answer], arms: Sequence[str], questions: Mapping[str, Line]
) -> list[Line]:
    """Every question that the two arms did not answer alike, with both replies."""
    rows = []
    for name, both in pairs(found, arms).items():
        if both[0].text == both[1].text:
            continue
        question = questions[name]
        rows.append(
            {
                "question": name,
                "test": question["test"],
                "expected": question.get("answer", question.get("accepted")),
                "verdict_changed": both[0].right != both[1].right,
                "arms": {answer.arm: _shown(answer) for answer in both},
            }
        )
    return rows


def _shown(answer: Answer) -> Line:
    sample = answer.sample or {}
    reply = {key: sample.get(key) for key in ("content", "reasoning", "tool_calls")}
    return {"outcome": answer.outcome, "read": answer.read, "right": answer.right, **reply}


def write(folder: Path) -> None:
    """Write scores.jsonl and changed.jsonl into the run directory."""
    found = answers(folder)
    arms = list(run.read_manifest(folder)["plan"]["arms"])
    rows = changed(found, arms, read_questions(folder))
    for name, lines in ((SCORES_FILE, [a.to_json() for a in found]), (CHANGED_FILE, rows)):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (folder / name).write_text(text, encoding="utf-8")
