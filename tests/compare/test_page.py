"""The compare page: made again byte for byte, and a page that needs nothing from outside."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from common.compare import compare
from common.compare import page as compare_page
from common.rig import ROOT
from tests.helpers.html_page import Page
from tests.helpers.runs import SPEED, copied, on_card
from tests.test_report import RUNS

PAGE = ROOT / "benchmarks" / "compare"


@pytest.fixture(scope="module")
def whole() -> Any:
    """All committed runs, given in an order that is not the page's."""
    return compare.compare(RUNS[::-1])


def test_the_committed_page_is_made_again_byte_for_byte(whole: Any, tmp_path: Path) -> None:
    for path in compare_page.write(whole, tmp_path):
        assert path.read_bytes() == (PAGE / path.name).read_bytes(), path.name


def test_what_is_found_holds_to_its_schema(whole: Any) -> None:
    schema = json.loads((ROOT / "common/compare/compare-1.json").read_text())
    jsonschema.validate(json.loads(json.dumps(whole)), schema)
    for key in ("runs", "figures", "published"):
        changed = {**whole, key: [{**whole[key][0], "note2": "hello"}]}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(changed, schema)


def test_a_ratio_on_the_page_is_in_all_three_forms(tmp_path: Path) -> None:
    plain = copied(SPEED, tmp_path / "plain")
    fast = copied(SPEED, tmp_path / "fast", on_card, lambda _trial: 1.5)
    paths = compare_page.write(compare.compare([plain, fast]), tmp_path / "out")
    texts = {path.name: path.read_text() for path in paths}
    number = "1.500" if "1.500" in texts["COMPARE.md"] else "0.667"
    assert "Speed of one hardware over another's" in texts["COMPARE.md"]
    assert number in texts["COMPARE.md"]
    assert number in texts["compare.html"]
    rows = [
        row
        for row in csv.DictReader(io.StringIO(texts["compare.csv"]))
        if row["source"] == "ratio" and row["quantity"] == "tokens_per_second"
    ]
    assert {f"{float(row['value']):.3f}" for row in rows} == {number}


def test_csv_has_one_row_for_every_figure(whole: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(compare_page.table(whole))))
    measured = [row for row in rows if row["source"] == "measured"]
    assert len(measured) == len(whole["figures"])
    for row, figure in zip(measured, whole["figures"], strict=True):
        assert float(row["value"]) == figure["value"]
        assert row["low"] == ("" if figure["low"] is None else str(figure["low"]))
    assert all(row["rig"] for row in measured)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The committed runs' page and a ratio between hardware on it, so that each figure is drawn."""
    other = copied(SPEED, tmp_path_factory.mktemp("card") / "card", on_card, lambda _trial: 1.5)
    (_, _, path) = compare_page.write(compare.compare([*RUNS, other]), other.parent)
    return Page(path.read_text())


def test_html_needs_nothing_from_outside(page: Page) -> None:
    page.needs_nothing_from_outside()


def test_html_can_be_read_without_seeing(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert page.all("html") == [{"lang": "en"}]
    figures = page.all("svg")
    assert len(figures) >= 5
    assert len(figures) == len(page.all("figure")) == len(page.all("desc"))
    for figure in figures:
        assert figure["role"] == "img"
        assert set((figure["aria-labelledby"] or "").split()) <= set(ids)
    assert all(text.strip() for text in page.texts["desc"])
    assert len(page.all("table")) == len(page.all("caption"))
    assert all(head.get("scope") in ("col", "row") for head in page.all("th"))
    for link in page.all("a"):
        assert (link["href"] or "").removeprefix("#") in ids


def test_what_a_run_says_cannot_become_markup(tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["host"]["cpu"] = '<script>alert(1)</script> | "x" & y'

    found = compare.compare([copied(SPEED, tmp_path / "bad", change)])
    (text, _, html) = (path.read_text() for path in compare_page.write(found, tmp_path / "out"))
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "</script> \\| " in text
