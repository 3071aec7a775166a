"""REPORT.html: what REPORT.md says, nothing a log can break, and figures that tell their values."""

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from common.measure import figures, inline, markdown, page
from common.measure.summary import Interval
from common.report import REPORT
from tests.helpers.html_page import Page
from tests.test_report import RUNS

PAYS: Interval = {"ratio": 1.5, "low": 1.25, "high": 1.75, "verdict": "pays"}
UNSURE: Interval = {"ratio": 0.9, "low": None, "high": None, "verdict": "unknown"}
SVG = "{http://www.w3.org/2000/svg}"
LARGEST = 300_000  # bytes of a page kept in git


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    """A folder with two figures."""
    arms = [("n=1 & <b>", PAYS), ("n=2", UNSURE)]
    figures.speed_up(tmp_path / "figures/speed_up.svg", arms, [("n=2", 0.8), ("n=2", 1.0)])
    series = {"n=1": [(1024.0, PAYS), (4096.0, UNSURE)]}
    figures.lines(tmp_path / "figures/depth.svg", series, "tokens")
    return tmp_path


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_a_report_is_there_in_whole(folder: Path) -> None:
    text = (folder / REPORT).read_text()
    html = markdown.document(text, folder)
    found = Page(html)
    found.needs_nothing_from_outside()
    assert len(html.encode()) < LARGEST
    assert len(found.all("table")) == len(re.findall(r"^\|-", text, re.MULTILINE))
    assert len(found.all("tr")) == len(re.findall(r"^\|[^-]", text, re.MULTILINE))
    assert len(found.all("svg")) == text.count("](figures/")
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {(one["href"] or "")[1:] for one in found.all("a")} <= set(ids)
    assert html == markdown.document(text, folder)


def test_what_a_log_says_is_no_markup(tmp_path: Path) -> None:
    reasons = [
        "<script>alert(1)</script> | </td>",
        "first line\n<img src=x onerror=alert(1)>",
        "![p](http://example.org/p.png) [x](javascript:alert(1))",
        "![p](figures/../../secret.svg)",
    ]
    (tmp_path / "secret.svg").write_text("<svg/>")
    html = markdown.document(
        "# <b>Run</b>\n\n" + page.table(["why"], [[reason] for reason in reasons]), tmp_path
    )
    found = Page(html)
    found.needs_nothing_from_outside()
    assert {"script", "img", "svg", "a", "b"}.isdisjoint(tag for tag, _ in found.tags)
    assert "".join(found.texts["title"]) == "<b>Run</b>"
    cells = "".join(found.texts["td"])
    assert all(line in cells for reason in reasons[:3] for line in reason.splitlines())
    assert len(found.all("td")) == len(reasons)
    assert len(found.all("br")) == 1


def test_tips_lie_on_what_they_tell(drawn: Path) -> None:
    root = ElementTree.parse(drawn / "figures/speed_up.svg").getroot()  # noqa: S314
    marks = [
        (float(mark.get("x", "0")), float(mark.get("y", "0"))) for mark in root.iter(f"{SVG}use")
    ]
    (tips,) = (group for group in root.iter(f"{SVG}g") if group.get("class") == figures.TIPS)
    found: dict[str, list[list[float]]] = {}
    for tip in tips:
        ends = [float(number) for number in re.findall(r"[\d.]+", tip.get("d", ""))]
        found.setdefault(tip.findtext(f"{SVG}title") or "", []).append(ends)
    bar, middle = found["n=1 & <b>: 1.500x (95%: 1.250 to 1.750), pays"]
    assert bar[0] < middle[0] < bar[2]
    assert found.keys() == {
        "n=1 & <b>: 1.500x (95%: 1.250 to 1.750), pays",
        "n=2: 0.900x (no interval), unknown",
        "n=2, one dot: 0.800x",
        "n=2, one dot: 1.000x",
    }
    points = [ends for one in found.values() for ends in one if ends[:2] == ends[2:]]
    assert len(points) == 4
    for x, y, *_ in points:
        assert min(math.dist((x, y), mark) for mark in marks) < 0.02


def test_figures_share_a_page(drawn: Path) -> None:
    text = "# Run\n\n![up](figures/speed_up.svg)\n\n![depth](figures/depth.svg)\n"
    html = markdown.document(text, drawn)
    found = Page(html)
    ids = [attributes["id"] or "" for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = {(one["href"] or "")[1:] for one in found.all("use")}
    used |= set(re.findall(r"url\(#([^)]+)\)", html))
    assert used
    assert used <= set(ids)
    assert [one["aria-label"] for one in found.all("svg")] == ["up", "depth"]
    assert "n=1 at 4,096: 0.900x (no interval), unknown" in found.texts["title"]
    # Each tip's words are also said below the figure.
    assert len(found.texts["title"]) - 1 == html.count('class="said"')


def test_no_colour_of_a_figure_is_for_light_ground_only(drawn: Path) -> None:
    svg = inline.svg(drawn / "figures/speed_up.svg", "up", "up")
    svg += inline.svg(drawn / "figures/depth.svg", "depth", "depth")
    left = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", svg))
    # Of the tips, unseen but under the pointer, and of the legend's frame.
    assert left <= {"#808080"}
    assert {"var(--paper)", "var(--ink)", "var(--pays)", "var(--even)", "var(--s0)"} <= set(
        re.findall(r"var\(--\w+\)", svg)
    )
