"""compare.html: one file that needs no network, reads on a phone and prints."""

import re
from html import escape
from pathlib import Path

from common.compare.conditions import KNOWN_ANSWER
from common.compare.sections import READING, sections
from common.compare.svg import Point, curves, forest
from common.measure import html
from common.measure.page import LEVEL
from common.measure.rows import BASELINE
from common.measure.sections import Figure, Found, Section, Table, at, figures, of, short

CLOSING = "Every figure, one a row, is in compare.csv beside this page. Made by make compare."
CSS = Path(__file__).with_name("compare.css")
BAND = f"shaded: {LEVEL}, cut off where wider than the figure"
# Characters from which a cell gets more room before it wraps.
LONG, MIDDLE = 40, 18


def render(found: Found, title: str) -> str:
    """The whole page as text."""
    parts = sections(found)
    said = "".join(f"<li>{escape(text)}</li>" for text in found["answer"])
    body = "\n".join(_section(section, _figures(section.title, found)) for section in parts)
    return html.document(
        title,
        f"""<header>
<h1>{escape(title)}</h1>
<ul>{said}</ul>
<p class="soft">{_emphasis(READING)}</p>
</header>
{html.contents([section.title for section in parts])}
<main>
{body}
</main>
<footer><p class="soft">{CLOSING}</p></footer>""",
        CSS.read_text(encoding="utf-8"),
    )


def _section(section: Section, drawn: list[str]) -> str:
    name = html.anchor(section.title)
    tables = "\n".join(_table(table) for table in section.tables)
    pictures = f'<div class="figures">\n{"".join(drawn)}</div>\n' if drawn else ""
    return (
        f'<section aria-labelledby="{name}">\n<h2 id="{name}">{escape(section.title)}</h2>\n'
        f"<p>{_emphasis(section.text)}</p>\n{pictures}{tables}\n</section>"
    )


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.head)
    rows = []
    for first, *rest in table.rows:
        cells = "".join(f"<td{_room(cell)}>{escape(cell)}</td>" for cell in rest)
        rows.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
    return (
        f"{html.wide(table.caption)}\n"
        f"<table>\n<caption>{escape(table.caption)}</caption>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{chr(10).join(rows)}\n</tbody>\n</table>\n</div>"
    )


def _room(cell: str) -> str:
    if len(cell) <= MIDDLE:
        return ""
    return ' class="long"' if len(cell) > LONG else ' class="middle"'


def _emphasis(text: str) -> str:
    """Markdown's *word* as HTML; the only markup the sections use."""
    return re.sub(r"\*([^*]+)\*", r"<em>\1</em>", escape(text))


def _figures(title: str, found: Found) -> list[str]:
    make = {
        "Speed": _speed,
        "Long context": _longctx,
        "Many requests at once": _sweep,
        "Ratios": _ratios,
    }.get(title)
    return make(found) if make else []


def _rig_first(row: tuple[str, Point, str]) -> str:
    return row[0].split(",")[0].split(" ")[0]


def _name(found: Found, name: str) -> str:
    """The rig, with date or number where it has several runs of this kind."""
    (run,) = (run for run in found["runs"] if run["run"] == name)
    alike = [one for one in of(found, run["what"]) if one["rig"] == run["rig"]]
    dates = [one["started"][:10] for one in alike]
    date = run["started"][:10]
    words = short(run["rig"]) + (f" {date}" if len(alike) > 1 else "")
    if dates.count(date) > 1:
        words += f" #{alike.index(run) + 1}"
    return words + (" (known answer)" if KNOWN_ANSWER in run["labels"] else "")


def _point(row: Figure) -> Point:
    return Point(row["value"], row["low"], row["high"], row["verdict"] or "even")


def _speed(found: Found) -> list[str]:
    """Speed-ups and speeds without drafter, measured (filled) and published (hollow), by rig."""
    ups: list[tuple[str, Point, str]] = []
    speeds: list[tuple[str, Point, str]] = []
    for run in of(found, "speed"):
        name = _name(found, run["run"])
        for row in figures(found, run, "speed_up"):
            if not row["place"]:
                label = f"{name}, {row['arm']}"
                ups.append((label, _point(row), f"{row['value']:.2f}x"))
        base = at(figures(found, run, "tokens_per_second"), BASELINE)
        if base:
            speeds.append((name, Point(base["value"]), f"{base['value']:.1f}"))
    for rig in dict.fromkeys(row["rig"] for row in found["published"]):
        own = {
            row["quantity"]: row
            for row in found["published"]
            if row["rig"] == rig and row["what"] == "speed"
        }
        label = f"{short(rig)}, published"
        for quantity, rows in (("speed_up", ups), ("tokens_per_second", speeds)):
            if quantity in own and (value := own[quantity]["value"]) is not None:
                point = Point(value, style="published")
                rows.append((label, point, own[quantity]["words"].split()[0]))
    ups.sort(key=_rig_first)
    speeds.sort(key=_rig_first)
    captions = (
        "Speed-up over no drafter; filled: measured here, hollow: published by others",
        "Speed without a drafter; filled: measured here, hollow: published by others",
    )
    axis = f"speed-up over no drafter; mark and bar: mean and {LEVEL}"
    drawn = (
        [html.figure(captions[0], forest("speed-up", captions[0], ups, axis, True))] if ups else []
    )
    if speeds:
        svg = forest("speed", captions[1], speeds, "tokens per second", False)
        drawn.append(html.figure(captions[1], svg))
    return drawn


def _longctx(found: Found) -> list[str]:
    drawn = []
    for number, run in enumerate(of(found, "longctx")):
        series: dict[str, list[tuple[str, Point]]] = {}
        for row in figures(found, run, "speed_up"):
            step = row["place"].removeprefix("depth ")
            series.setdefault(row["arm"], []).append((step, _point(row)))
        if series:
            caption = f"Speed-up by depth, {short(run['run'])}, measured here; {BAND}"
            svg = curves(f"depth-{number}", caption, series, "tokens in front of the request")
            drawn.append(html.figure(caption, svg))
    return drawn


def _sweep(found: Found) -> list[str]:
    drawn = []
    for number, run in enumerate(of(found, "sweep", "longmixed")):
        series: dict[str, list[tuple[str, Point]]] = {}
        for row in figures(found, run, "speed_up"):
            kind, _, step = row["place"].removesuffix(" at once").rpartition(", ")
            series.setdefault(f"{kind}; {row['arm']}", []).append((step, _point(row)))
        if series:
            caption = f"Speed-up by requests at once, {short(run['run'])}, measured here; {BAND}"
            svg = curves(f"at-once-{number}", caption, series, "requests at once")
            drawn.append(html.figure(caption, svg))
    return drawn


def _ratios(found: Found) -> list[str]:
    rows = [
        (
            f"{_name(found, pair['first'])} / {_name(found, pair['second'])}, {row['arm']}",
            Point(row["ratio"], row["low"], row["high"]),
            f"{row['ratio']:.2f}x",
        )
        for pair in found["pairs"]
        if pair["between"] == "hardware"
        for row in pair["ratios"]
        if row["quantity"] == "tokens_per_second" and row["ratio"] and not row["place"]
    ]
    if not rows:
        return []
    caption = "Speed of one hardware over another's, same files, engine and prompts"
    axis = f"ratio of speeds; mark and bar: mean and {LEVEL}"
    return [html.figure(caption, forest("ratios", caption, rows, axis, True))]
