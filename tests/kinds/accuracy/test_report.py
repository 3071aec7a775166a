"""The sentence of an accuracy report, and where in its figures nothing is drawn."""

from pathlib import Path
from typing import Any

import pytest

from common.kinds.accuracy.report import answer
from common.measure import figures

MANIFEST: Any = {"card": {"name": "NVIDIA L4"}, "host": {}}


def score(name: str, verdict: str, difference: float = 0.0) -> dict[str, Any]:
    return {
        "score": name,
        "verdict": verdict,
        "difference": difference,
        "low": difference - 0.02,
        "high": difference + 0.02,
        "finished_right": [2, 0],
    }


def told(last: str, marked: str, call: str) -> str:
    """The sentence without the hardware, of two tests whose scores have these verdicts."""
    sums = [score("last_number", last, -0.1), score("last_marked", marked, -0.2)]
    tests = [
        {"test": "gsm8k", "primary": "last_number", "questions": 60, "scores": sums},
        {"test": "bfcl", "primary": "call", "questions": 40, "scores": [score("call", call)]},
    ]
    summary: Any = {"arms": ["none", "n=2"], "tests": tests}
    text = answer(summary, MANIFEST)
    assert text.startswith("On an NVIDIA L4, ")
    return text.removeprefix("On an NVIDIA L4, ")


LAST = "GSM8K, last number -10.0 (-12.0 to -8.0)"
CALL = "BFCL simple 0.0 (-2.0 to +2.0)"
NO_TEST = (
    "not a test, as the first arm (none) has too few finished replies right for a loss to show"
)


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (
            ("none_shown", "none_shown", "none_shown"),
            "no difference between n=2 and none can be shown with these questions: "
            f"{LAST}; {CALL} points.",
        ),
        (
            ("worse", "worse", "none_shown"),
            f"n=2 answers worse than none: {LAST} points; no difference between n=2 and none can "
            f"be shown with these questions: {CALL} points.",
        ),
        (
            ("better", "not_a_test", "not_a_test"),
            f"n=2 answers better than none: {LAST} points; {NO_TEST}: BFCL simple (2 of 40).",
        ),
        (
            ("not_a_test", "not_a_test", "not_a_test"),
            f"{NO_TEST}: GSM8K, last number (2 of 60); BFCL simple (2 of 40).",
        ),
        (
            ("none_shown", "worse", "not_a_test"),
            "no difference between n=2 and none can be shown with these questions: "
            f"{LAST} points; {NO_TEST}: BFCL simple (2 of 40); worse by a score that does not "
            "decide: GSM8K, last marked number -20.0 (-22.0 to -18.0) points.",
        ),
    ],
)
def test_the_sentence(verdicts: tuple[str, str, str], said: str) -> None:
    assert told(*verdicts) == said


def test_of_what_is_no_test_nothing_is_drawn(tmp_path: Path) -> None:
    rows: Any = [("a", score("a", "none_shown")), ("b", score("b", "not_a_test"))]
    drawn = []
    for some in (rows, rows[1:], rows[:1]):
        figures.differences(tmp_path / "figure.svg", some)
        drawn.append((tmp_path / "figure.svg").read_text())
    assert [text.count(">not a test<") for text in drawn] == [1, 1, 0]
    bars = [f"stroke: {figures.EVEN}" in text for text in drawn]
    assert bars == [True, False, True]
