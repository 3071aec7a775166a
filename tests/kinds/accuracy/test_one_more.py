"""One more accuracy test is one file (spelling.py) and one name in its registration."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from common import kinds, report
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.kinds.accuracy import plan as accuracy
from common.kinds.accuracy import scores, tests
from common.measure import run
from common.rig import ROOT, Rig
from tests.kinds.accuracy import spelling, test_accuracy
from tests.kinds.accuracy.test_accuracy import data, words

__all__ = ["data"]  # a fixture that every test here uses
Fake = Callable[..., Engine]
COMMITTED = ROOT / "local-llamacpp-cpu-270m-q4_k_m/benchmarks/runs/2026-11-29-accuracy-cpu"
REPLIES = [
    words("lantern", "l-a-n-t-e-r-n"),
    words("harbour", "h-a-r-b-o-u-r", drafting=False),
    words("harbour", "H-a-r-b-o-u-r", drafting=True),
    words("kettle", "I cannot."),
]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line."""
    monkeypatch.setattr(tests, "TESTS", (*tests.TESTS, spelling.TEST))


@pytest.fixture
def measured(tiny: Rig, fake: Fake, tmp_path: Path) -> Path:
    path = tmp_path / "replies.json"
    path.write_text(json.dumps([*REPLIES, *test_accuracy.REPLIES]))
    fake(replies=str(path))
    test_accuracy.measure(tiny, tmp_path / "run")
    return tmp_path / "run"


def test_it_is_asked_scored_and_reported(measured: Path) -> None:
    questions = run.read_lines(measured, accuracy.QUESTIONS)
    assert questions[-1] == {"id": "spelling_kettle", "test": "spelling", "letters": "k-e-t-t-l-e"}
    asked = run.read_manifest(measured)["plan"]
    assert asked["inputs"]["spelling_sha256"] == spelling.SHA256
    assert asked["cells"]["spelling_kettle"]["requests"][0]["max_tokens"] == 64
    own = [
        line
        for line in run.read_lines(measured, scores.SCORES_FILE)
        if line["question"] == "spelling_harbour"
    ]
    assert {line["arm"]: line["right"] for line in own} == {
        "none": {"exact": True, "any_case": True},
        "n=2": {"exact": False, "any_case": True},
    }
    (row,) = [
        line for line in run.read_lines(measured, scores.CHANGED_FILE) if line["test"] == "spelling"
    ]
    assert (row["expected"], row["verdict_changed"]) == ("h-a-r-b-o-u-r", True)
    summary = json.loads((measured / report.SUMMARY).read_text())
    assert summary["published"] == {"gsm8k": False, "bfcl": False, "spelling": True}
    (own_figures,) = [one for one in summary["tests"] if one["test"] == "spelling"]
    assert own_figures["questions"] == 3
    assert {one["score"]: one["right"] for one in own_figures["scores"]} == {
        "exact": [2, 1],
        "any_case": [2, 2],
    }
    text = (measured / report.REPORT).read_text()
    for part in (
        "| **Spelling, exact**       | 2 of 3 (66.7%; 20.8% to 93.9%)",
        "- Spelling: 2 of 3 replies are the same with none and n=2",
        "without its prompt, examples and stop words. *Exact* minds capitals. docs/METHOD.md",
        "(Apache-2.0). Spelling: three words of this file. Questions asked at once",
    ):
        assert part in text
    rows = kinds.of("accuracy").figures(summary, run.read_manifest(measured))
    assert [row["note"] for row in rows if row["place"] == "SPELLING, exact"][:2] == [
        "2 of 3",
        "1 of 3",
    ]
    test_accuracy.rescored_alike(measured)


def test_where_it_is_not_known_its_runs_are_refused(
    measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tests, "TESTS", tests.TESTS[:-1])
    with pytest.raises(RigError, match="no accuracy test 'spelling' in this version; there are"):
        report.write(measured)


def test_a_run_from_before_it_keeps_its_bytes(tmp_path: Path) -> None:
    copy = tmp_path / COMMITTED.name
    shutil.copytree(COMMITTED, copy)
    report.write(copy)
    files = [path for path in COMMITTED.rglob("*") if path.is_file()]
    assert len(files) > 8
    for path in files:
        assert (copy / path.relative_to(COMMITTED)).read_bytes() == path.read_bytes(), path.name


def test_two_questions_of_one_id_are_refused(tiny: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spelling, "WORDS", ("kettle", "kettle"))
    with pytest.raises(RigError, match="2 questions have the id spelling_kettle"):
        accuracy.plan(tiny)
