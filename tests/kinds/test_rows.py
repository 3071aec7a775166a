"""The figures of every kind of run in one shape, from runs against the fake server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common import kinds, report
from common.compare import compare
from common.compare import page as compare_page
from common.engines.llamacpp.build import Engine
from common.measure import run
from common.rig import Rig
from scripts import _measuring
from tests.kinds import test_formats, test_identity
from tests.kinds.accuracy import test_accuracy
from tests.kinds.accuracy.test_accuracy import data  # noqa: F401 (small question files)
from tests.test_report import RUNS

Fake = Callable[..., Engine]


def rows_of(folder: Path) -> list[Any]:
    summary = json.loads((folder / report.SUMMARY).read_text())
    return kinds.of(summary["what"]).figures(summary, run.read_manifest(folder))


@pytest.mark.parametrize(
    "folder", RUNS, ids=lambda folder: f"{folder.parents[2].name}-{folder.name}"
)
def test_the_figures_are_those_of_the_summary(folder: Path) -> None:
    """Every ratio and speed of a row is a number that its summary holds."""
    text = (folder / report.SUMMARY).read_text()
    for row in rows_of(folder):
        if row["quantity"] in ("tokens_per_second", "speed_up", "kept", "shared_over_per_slot"):
            assert json.dumps(row["value"]) in text


def test_an_accuracy_run(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    test_accuracy.scripted(fake, tmp_path)
    test_accuracy.measure(tiny, tmp_path / "run")
    rows = {(row["quantity"], row["arm"], row["place"]): row for row in rows_of(tmp_path / "run")}
    assert rows["score", "none", "GSM8K, last_marked"]["note"] == "2 of 6"
    assert rows["score", "n=2", "GSM8K, last_marked"]["value"] == pytest.approx(1 / 6, abs=1e-6)
    difference = rows["difference", "n=2 less none", "GSM8K, last_marked"]
    assert difference["value"] == pytest.approx(-1 / 6, abs=1e-6)
    assert difference["low"] < difference["value"] < difference["high"]
    assert difference["verdict"] == "not_a_test"
    assert rows["equal_replies", "n=2", "GSM8K"]["value"] == 4
    page = compare_page.markdown(compare.compare([tmp_path / "run"]))
    assert "none: 2 of 6 (33.3%)" in page
    assert "-16.67" in page
    assert "| exact McNemar p 1 | not a test " in page


def test_an_identity_run(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    fake(rate="2000")
    _measuring.measure(tiny, test_identity.plan(tiny, 2), tmp_path / "run")
    rows = rows_of(tmp_path / "run")
    assert {row["quantity"] for row in rows} == {"equal_replies"}
    assert {row["arm"] for row in rows} == {"none", "n=2"}
    assert [row["place"] for row in rows if row["arm"] == "none"] == ["control"]
    assert "## Same text" in compare_page.markdown(compare.compare([tmp_path / "run"]))


def test_a_formats_run(tiny: Rig, fake: Fake, tmp_path: Path) -> None:
    fake(rate="2000", speed_ups="2:1.25", accept="2,0")
    done = test_formats.finish(tiny, tmp_path / "run")
    assert done.code == 0, done.err
    rows = {(row["quantity"], row["arm"]): row for row in rows_of(tmp_path / "run")}
    for arm in ("Q4_0", "Q8_0", "BF16"):
        assert rows["speed_up", arm]["value"] == pytest.approx(1.25, rel=0.2)
    assert ("speed_over_q4_0", "Q4_0") not in rows
    assert rows["speed_over_q4_0", "Q8_0"]["value"] == pytest.approx(1, rel=0.2)
    page = compare_page.markdown(compare.compare([tmp_path / "run"]))
    assert "## Drafter formats" in page
    assert "quick: a look, not a result" in page
