"""Our lm-eval verdicts against lm-evaluation-harness's own (made by make_lm_eval.py)."""

import json
from pathlib import Path
from typing import Any

import pytest

from common.kinds.accuracy import lm_eval
from common.kinds.accuracy.outcomes import StoredReply
from common.kinds.accuracy.tests import gsm8k

STORED = Path(__file__).parent / "data" / "lm_eval" / "gsm8k.jsonl"
LINES: list[dict[str, Any]] = [json.loads(line) for line in STORED.read_text().splitlines()]


def judged(reply: str, **kept: str) -> tuple[bool, bool]:
    right = gsm8k.verdict({"answer": "0", **kept}, StoredReply(reply)).right
    return right["lm_eval_strict"], right["lm_eval_flexible"]


def test_verdicts_are_the_harness_s_own() -> None:
    other = [
        line["reply"]
        for line in LINES
        if judged(line["reply"], target=lm_eval.clean(line["solution"]))
        != (line["strict-match"], line["flexible-extract"])
    ]
    assert other == []


def test_the_stored_replies_can_tell_rules_apart() -> None:
    assert len({(line["reply"], line["solution"]) for line in LINES}) >= 300
    verdicts = [(line["strict-match"], line["flexible-extract"]) for line in LINES]
    for both in [(a, b) for a in (False, True) for b in (False, True)]:
        assert verdicts.count(both) >= 20
    # Our own rules, which read numbers, would give many other verdicts.
    ours = []
    for line in LINES:
        truth, read = (gsm8k.score(line[key]) for key in ("solution", "reply"))
        ours.append((read.last_marked == truth.last_marked, read.last_number == truth.last_marked))
    assert sum(one != two for one, two in zip(ours, verdicts, strict=True)) > 50


@pytest.mark.parametrize(
    ("reply", "strict", "flexible"),
    [
        ("#### 18\nNo, wait.\n#### 19", "18", "19"),  # the first mark, the last number
        ("####18", None, "18"),
        ("#### $18", None, "18"),
        ("#### 1,800.", "1800", "1800"),
        ("#### 18.00", "18.00", "18.00"),  # texts, not numbers
        ("It is 5 then...", None, ".."),  # two signs without a digit are enough
        ("It is 5.", None, "5"),
        ("I cannot tell.", None, None),
        ("", None, None),
    ],
)
def test_what_is_read(reply: str, strict: str | None, flexible: str | None) -> None:
    assert (lm_eval.strict(reply), lm_eval.flexible(reply)) == (strict, flexible)


def test_a_run_of_before_targets_were_kept_is_judged_by_its_answer() -> None:
    assert judged("#### 18", answer="18") == (True, True)
    assert judged("#### 19", answer="18") == (False, False)
