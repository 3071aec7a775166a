"""An accuracy test as somebody may add one: all of it is this file. See test_one_more.py."""

import hashlib
from dataclasses import dataclass
from typing import Any

from common.kinds.accuracy.outcomes import StoredReply, classify
from common.kinds.accuracy.test import Kept, Test, Verdict

WORDS = ("lantern", "harbour", "kettle")
SHA256 = hashlib.sha256(" ".join(WORDS).encode()).hexdigest()


@dataclass(frozen=True)
class Question:
    id: str
    word: str


def load() -> tuple[list[Question], str]:
    return [Question(f"spelling_{word}", word) for word in WORDS], SHA256


def ask(question: Question) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"Spell {question.word} aloud."}]}


def keep(question: Question) -> dict[str, Any]:
    return {"letters": "-".join(question.word)}


def verdict(kept: Kept, reply: StoredReply) -> Verdict:
    told = reply.content.strip()
    right = {"exact": told == kept["letters"], "any_case": told.lower() == kept["letters"]}
    return Verdict(classify(reply), dict.fromkeys(right, told or None), right)


TEST = Test(
    name="spelling",
    title="Spelling",
    scores={"exact": "Spelling, exact", "any_case": "Spelling, any case"},
    tokens=64,
    published=SHA256,
    source="Spelling: three words of this file.",
    setting="SPELLING_PATH",
    load=load,
    ask=ask,
    keep=keep,
    expected="letters",
    verdict=verdict,
    legend="*Exact* minds capitals.",
)
