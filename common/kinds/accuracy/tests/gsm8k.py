"""GSM8K: sums told in words, and the number that a reply ends in."""

import hashlib
import json
import os
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from common.digest import sha256
from common.errors import RigError
from common.kinds.accuracy import lm_eval, questions
from common.kinds.accuracy.numbers import find_numbers
from common.kinds.accuracy.outcomes import StoredReply, classify
from common.kinds.accuracy.test import PROMPTS, Kept, Test, Verdict
from common.measure.texts import prompts

# openai/grade-school-math (MIT licence), its test file at this commit: 1,319 questions.
REPOSITORY = "openai/grade-school-math"
COMMIT = "3101c7d5072418e28b9008a6636bde82a006892c"
FILE = "grade_school_math/data/test.jsonl"
SHA256 = "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14"
URL = f"https://raw.githubusercontent.com/{REPOSITORY}/{COMMIT}/{FILE}"
SETTING = "GSM8K_PATH"

PLACE = "{question}"
MARKER = re.compile(r"#{4,}")


@dataclass(frozen=True)
class Question:
    """One question and the number that answers it."""

    id: str
    """gsm8k_<line, counted from 0>"""
    text: str
    answer: Fraction
    target: str
    """the answer as text, as lm-evaluation-harness compares it"""


@dataclass(frozen=True)
class Score:
    """The number each of our rules reads in a reply; None where the rule finds no number."""

    last_number: Fraction | None
    last_marked: Fraction | None


def load() -> tuple[list[Question], str]:
    """The questions and their file's SHA-256.

    GSM8K_PATH names a file to use as it is (its digest is recorded); without it, the published
    file is fetched once and must have the pinned digest. Raises RigError.
    """
    own = os.environ.get(SETTING)
    if own:
        return read(Path(own), None), sha256(Path(own))
    path = questions.folder() / f"gsm8k-test-{COMMIT[:12]}.jsonl"
    if not path.is_file():
        questions.fetch(URL, path, read, "GSM8K", SETTING)
    return read(path), SHA256


def read(path: Path, wanted: str | None = SHA256) -> list[Question]:
    """The questions of the test file at `path`, in file order.

    `wanted` is the SHA-256 it must have; None accepts any file of the same form. Raises RigError
    for a file that cannot be read, has another digest, or holds a line without a question and a
    number.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RigError(f"{path}: cannot read the GSM8K test file: {error.strerror}") from error
    digest = hashlib.sha256(data).hexdigest()
    if wanted is not None and digest != wanted:
        raise RigError(
            f"{path}: not the GSM8K test file: SHA-256 is {digest}, expected {wanted}; "
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
        answer = score(solution).last_marked
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise RigError(f"{where}: expected a JSON object with question and answer") from error
    if answer is None:
        raise RigError(f"{where}: the answer has no number after ####")
    return Question(f"gsm8k_{index}", text, answer, lm_eval.clean(solution))


def ask(question: Question) -> dict[str, Any]:
    return {"messages": messages(question, _template())}


@cache
def _template() -> str:
    return prompts(PROMPTS)["gsm8k"]


def messages(question: Question, template: str) -> list[dict[str, str]]:
    """The chat that asks a question: one user message, without examples.

    `template` holds {question} once. Raises RigError if it does not.
    """
    if template.count(PLACE) != 1:
        raise RigError(f"{PROMPTS}: the gsm8k prompt must hold {PLACE} once")
    # Not str.format: a question, or the prompt itself, may hold other braces.
    content = template.replace(PLACE, question.text).strip()
    return [{"role": "user", "content": content}]


def keep(question: Question) -> dict[str, Any]:
    return {"answer": str(question.answer), "target": question.target}


def verdict(kept: Kept, reply: StoredReply) -> Verdict:
    """Our two rules and the harness's two on one reply."""
    numbers = vars(score(reply.content))
    answer = Fraction(kept["answer"])
    read = {rule: None if number is None else str(number) for rule, number in numbers.items()}
    right = {rule: number == answer for rule, number in numbers.items()}
    # Runs of before targets were kept asked the published questions: all whole numbers.
    target = kept.get("target", kept["answer"])
    for rule in (lm_eval.strict, lm_eval.flexible):
        name, text = f"lm_eval_{rule.__name__}", rule(reply.content)
        read[name], right[name] = text, text == target
    return Verdict(classify(reply), read, right)


def score(reply_text: str) -> Score:
    """The numbers that count as the answer in a reply.

    last_number: the last number anywhere in the reply. last_marked: the first number after the last
    `####` that has something to say, on the first line there that is not blank. What reads as a
    number is in numbers.find_numbers. A score is right where it equals Question.answer exactly:
    42.00 is 42, 41.99 is not.
    """
    numbers = find_numbers(reply_text)
    return Score(numbers[-1] if numbers else None, _after_marker(reply_text))


def _after_marker(reply_text: str) -> Fraction | None:
    parts = MARKER.split(reply_text)
    while len(parts) > 2 and _says_nothing(parts[-2], parts[-1]):
        parts.pop()
    if len(parts) == 1:
        return None
    lines = parts[-1].strip().splitlines()
    numbers = find_numbers(lines[0]) if lines else []
    return numbers[0] if numbers else None


def _says_nothing(before: str, after: str) -> bool:
    """Whether the marker between these is no answer: nothing follows it, or it closes a heading
    (`#### 18 ####`), whatever follows on other lines."""
    rest = after.partition("\n")[0] if "\n" not in before and _has_words(before) else after
    return not _has_words(rest)


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))


TEST = Test(
    name="gsm8k",
    title="GSM8K",
    scores={
        "last_number": "GSM8K, last number",
        "last_marked": "GSM8K, last marked number",
        "lm_eval_strict": "GSM8K, lm-eval strict",
        "lm_eval_flexible": "GSM8K, lm-eval flexible",
    },
    tokens=1024,
    published=SHA256,
    source=f"GSM8K: {REPOSITORY} at commit `{COMMIT[:12]}` (MIT).",
    setting=SETTING,
    load=load,
    ask=ask,
    keep=keep,
    expected="answer",
    verdict=verdict,
    legend="*Last number* is the last number in the reply, *last marked number* the one after the "
    "last `####`. *lm-eval* judges the same reply by the rules of lm-evaluation-harness (gsm8k, "
    "version 3), without its prompt, examples and stop words.",
)
