"""GSM8K: the test questions, their reference answers, and the scores of a reply."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from common.errors import RigError
from common.kinds.accuracy.tests.numbers import find_numbers

# openai/grade-school-math (MIT licence), its test file at this commit: 1,319 questions.
REPOSITORY = "openai/grade-school-math"
COMMIT = "3101c7d5072418e28b9008a6636bde82a006892c"
FILE = "grade_school_math/data/test.jsonl"
SHA256 = "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"

_QUESTION = "{question}"
_MARKER = re.compile(r"#{4,}")


@dataclass(frozen=True)
class Question:
    """One question and the number that answers it."""

    id: str  # gsm8k_<line, counted from 0>
    text: str
    answer: Fraction


@dataclass(frozen=True)
class Score:
    """The number each rule reads in a reply; None where the rule finds no number."""

    strict: Fraction | None
    flexible: Fraction | None


def load(path: Path, sha256: str | None = SHA256) -> list[Question]:
    """The questions of the test file at ``path``, in file order.

    ``sha256`` is what the file must hash to; None accepts any file of the same form. Raises
    RigError for a file that cannot be read, has another digest, or holds a line without a question
    and a number.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RigError(f"{path}: cannot read the GSM8K test file: {error.strerror}") from error
    found = hashlib.sha256(data).hexdigest()
    if sha256 is not None and found != sha256:
        raise RigError(
            f"{path}: not the GSM8K test file: SHA-256 is {found}, expected {sha256}; "
            f"fetch {FILE} of {REPOSITORY} at commit {COMMIT} again"
        )
    # Lines end in \n only: a question may hold other characters that end a line elsewhere.
    lines = data.decode("utf-8", errors="replace").rstrip("\n").split("\n")
    return [_question(path, index, line) for index, line in enumerate(lines)]


def _question(path: Path, index: int, line: str) -> Question:
    where = f"{path}, line {index + 1}"
    try:
        row = json.loads(line)
        text, solution = row["question"], row["answer"]
        answer = score(solution).strict
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise RigError(f"{where}: expected a JSON object with question and answer") from error
    if answer is None:
        raise RigError(f"{where}: the answer has no number after ####")
    return Question(id=f"gsm8k_{index}", text=text, answer=answer)


def messages(question: Question, template: str) -> list[dict[str, str]]:
    """The chat that asks ``question``: one user message, without examples.

    ``template`` is the gsm8k prompt of prompts/accuracy.yaml; it holds {question} once. Raises
    RigError if it does not.
    """
    if template.count(_QUESTION) != 1:
        raise RigError(f"prompts/accuracy.yaml: the gsm8k prompt must hold {_QUESTION} once")
    # Not str.format: a question, or the prompt itself, may hold other braces.
    content = template.replace(_QUESTION, question.text).strip()
    return [{"role": "user", "content": content}]


def score(reply_text: str) -> Score:
    """The numbers that count as the answer in ``reply_text``.

    strict: the first number after the last ``####``, on the first line there that is not blank.
    flexible: the last number anywhere in the reply. What reads as a number is in
    common.numbers.find_numbers. A score is right where it equals Question.answer exactly:
    42.00 is 42, 41.99 is not.
    """
    numbers = find_numbers(reply_text)
    return Score(strict=_after_marker(reply_text), flexible=numbers[-1] if numbers else None)


def _after_marker(reply_text: str) -> Fraction | None:
    parts = _MARKER.split(reply_text)
    if len(parts) == 1:
        return None
    lines = parts[-1].strip().splitlines()
    numbers = find_numbers(lines[0]) if lines else []
    return numbers[0] if numbers else None
