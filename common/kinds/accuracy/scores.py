"""Scores: the verdict on every stored reply, and what the two arms make of the questions.

All of it is a pure function of the run directory: no model, no network.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.kinds.accuracy import tests
from common.kinds.accuracy.outcomes import StoredReply
from common.kinds.accuracy.plan import CONTROL, QUESTIONS
from common.kinds.accuracy.test import Verdict
from common.measure import run
from common.measure.journal import Sample, Trial

SCORES_FILE = "scores.jsonl"
CHANGED_FILE = "changed.jsonl"
Line = dict[str, Any]


def read_questions(folder: Path) -> dict[str, Line]:
    """Question id -> its line of questions.jsonl, in the order asked."""
    return {line["id"]: line for line in run.read_lines(folder, QUESTIONS)}


@dataclass(frozen=True)
class Answer:
    """One stored reply with its verdict."""

    question: str
    test: str
    arm: str
    round: str
    verdict: Verdict
    sample: Sample | None
    """the reply; None where the request failed"""

    @property
    def text(self) -> str | None:
        """What two replies must share to be equal: text, reasoning and calls."""
        if self.sample is None:
            return None
        parts = [self.sample["content"], self.sample["reasoning"], self.sample["tool_calls"]]
        return json.dumps(parts, ensure_ascii=False)

    def to_json(self) -> Line:
        about = {name: getattr(self, name) for name in ("question", "test", "arm", "round")}
        return {**about, **_told(self.verdict)}


def _told(verdict: Verdict) -> Line:
    return {
        "outcome": verdict.outcome.value,
        "read": dict(verdict.read),
        "right": dict(verdict.right),
    }


def answers(folder: Path) -> list[Answer]:
    """Every stored reply of a run with its verdict, in the journal's order.

    Raises RigError for a run of a test that this version does not have.
    """
    questions = read_questions(folder)
    cells = run.read_manifest(folder)["plan"]["cells"]
    told = []
    trials: list[Trial] = run.read_lines(folder, run.JOURNAL)
    for trial in trials:
        ids = cells[trial["cell"]]["questions"]
        lost = StoredReply(error=trial["failed"])
        samples: list[Sample | None] = [*trial["samples"]] or [None] * len(ids)
        for name, sample in zip(ids, samples, strict=True):
            test = tests.of(questions[name]["test"])
            verdict = test.verdict(questions[name], stored(sample) if sample else lost)
            reply = None if sample is None or sample["error"] else sample
            told.append(Answer(name, test.name, trial["arm"], trial["round"], verdict, reply))
    return told


Pair = tuple[Answer, Answer]


def pairs(answers: Iterable[Answer], arms: Sequence[str]) -> dict[str, Pair]:
    """Question -> its answer in the first and in the second arm, where both were asked."""
    by_arm: dict[str, dict[str, Answer]] = {arm: {} for arm in arms}
    for answer in answers:
        if answer.round != CONTROL:
            by_arm[answer.arm][answer.question] = answer
    first, second = by_arm.values()
    return {name: (first[name], second[name]) for name in first if name in second}


def stored(sample: Sample) -> StoredReply:
    """A sample of the journal as the scorers read it."""
    return StoredReply(
        content=sample["content"],
        reasoning_content=sample["reasoning"],
        finish_reason=sample["finish_reason"],
        tool_calls=sample.get("tool_calls") or (),
        error=sample["error"],
    )


def changed(
    answers: Iterable[Answer], arms: Sequence[str], questions: Mapping[str, Line]
) -> list[Line]:
    """Every question that the two arms did not answer alike, with both replies."""
    rows = []
    for name, both in pairs(answers, arms).items():
        if both[0].text == both[1].text:
            continue
        question = questions[name]
        rows.append(
            {
                "question": name,
                "test": question["test"],
                "expected": question[tests.of(question["test"]).expected],
                "verdict_changed": both[0].verdict.right != both[1].verdict.right,
                "arms": {answer.arm: _shown(answer) for answer in both},
            }
        )
    return rows


def _shown(answer: Answer) -> Line:
    sample: Mapping[str, Any] = answer.sample or {}
    reply = {key: sample.get(key) for key in ("content", "reasoning", "tool_calls")}
    return {**_told(answer.verdict), **reply}


def write(folder: Path) -> None:
    """Write scores.jsonl and changed.jsonl into the run directory."""
    every = answers(folder)
    arms = list(run.read_manifest(folder)["plan"]["arms"])
    rows = changed(every, arms, read_questions(folder))
    for name, lines in ((SCORES_FILE, [a.to_json() for a in every]), (CHANGED_FILE, rows)):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (folder / name).write_text(text, encoding="utf-8")
