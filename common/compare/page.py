"""The compare page: COMPARE.md, compare.csv and compare.html, the same bytes from the same runs."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.compare import html as compare_html
from common.compare.sections import READING, sections
from common.measure import page
from common.measure.sections import Found

MARKDOWN, CSV, HTML = "COMPARE.md", "compare.csv", "compare.html"
TITLE = "Rigs compared"
COLUMNS = (
    "source",
    "rig",
    "run",
    "over",
    "what",
    "quantity",
    "arm",
    "place",
    "unit",
    "value",
    "low",
    "high",
    "bounds",
    "verdict",
    "note",
    "labels",
)


def write(found: Found, out: Path) -> list[Path]:
    """Write the three forms into `out`; returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    forms = {MARKDOWN: markdown(found), CSV: table(found), HTML: compare_html.render(found, TITLE)}
    for name, text in forms.items():
        (out / name).write_text(text, encoding="utf-8", newline="")
    return [out / name for name in forms]


def markdown(found: Found) -> str:
    pieces = [f"# {TITLE}", "\n".join(f"- {said}" for said in found["answer"]), READING]
    for section in sections(found):
        pieces += [f"## {section.title}", section.text]
        for one in section.tables:
            rows = [list(row) for row in one.rows]
            pieces += [f"{one.caption}:", page.table(list(one.head), rows)]
    pieces.append(
        "The same as one page with figures: compare.html; every figure, one a row: "
        "compare.csv. Made by `make compare`."
    )
    return "\n\n".join(pieces) + "\n"


def table(found: Found) -> str:
    """CSV, one row per figure: measured, published, and ratios; absent values are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    labels = {run["run"]: "; ".join(run["labels"]) for run in found["runs"]}
    for row in found["figures"]:
        writer.writerow(_row("measured", row, labels=labels[row["run"]], bounds=page.LEVEL))
    for quoted in found["published"]:
        low, high = quoted["range"] or quoted["interval"] or (None, None)
        note = "; ".join(
            part for part in (quoted["title"], quoted["statement"], quoted["conditions"]) if part
        )
        writer.writerow(
            _row(
                "published",
                quoted,
                low=low,
                high=high,
                note=note,
                bounds="range" if quoted["range"] else page.LEVEL,
            )
        )
        beside = quoted["beside"]
        if beside:
            known = {**quoted, **(beside["ratio"] or {}), "unit": "x", "run": beside["run"]}
            writer.writerow(
                _row(
                    "measured/published",
                    known,
                    over=quoted["source"],
                    arm=beside["arm"],
                    bounds=page.LEVEL,
                    value=beside["ratio"]["ratio"] if beside["ratio"] else None,
                    low=known.get("low"),
                    high=known.get("high"),
                    note="; ".join(beside["refused"] or beside["labels"]),
                    verdict="refused" if beside["refused"] else None,
                )
            )
    for pair in found["pairs"]:
        head = {"run": pair["first"], "over": pair["second"], "what": pair["what"], "unit": "x"}
        if pair["refused"]:
            writer.writerow(_row("ratio", head, verdict="refused", note="; ".join(pair["refused"])))
        for ratio in pair["ratios"]:
            writer.writerow(
                _row(
                    "ratio",
                    {**ratio, **head},
                    value=ratio["ratio"],
                    bounds=page.LEVEL,
                    verdict="refused" if ratio["refused"] else None,
                    note="; ".join(ratio["refused"]),
                    labels="; ".join(pair["labels"]),
                )
            )
    return text.getvalue()


def _row(source: str, row: Mapping[str, Any], **other: Any) -> dict[str, Any]:
    known = {"source": source, **row, **other}
    if known.get("low") is None and known.get("high") is None:
        known["bounds"] = ""
    return {key: known[key] for key in COLUMNS if known.get(key) is not None}
