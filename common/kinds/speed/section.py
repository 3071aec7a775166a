"""Its part of the compare page."""

from common.measure.page import LEVEL
from common.measure.rows import BASELINE
from common.measure.sections import (
    Found,
    Section,
    Table,
    at,
    figures,
    of,
    short,
    speed_up,
    to_know,
    value,
)


def section(found: Found) -> Section | None:
    rows = []
    for run in of(found, "speed"):
        speeds, ups = figures(found, run, "tokens_per_second"), figures(found, run, "speed_up")
        best = next(iter(figures(found, run, "best_speed_up")), None)
        arm = best["arm"] if best else ""
        whole = at(figures(found, run, "whole_reply_speed_up"), arm)
        other = next((up for up in ups if up["place"] and up["arm"] == arm), None)
        rows.append(
            [
                short(run["run"]),
                run["hardware"],
                value(at(speeds, BASELINE), 1),
                f"{arm} ({best['note']})" if best else "",
                speed_up(best),
                (best["verdict"] or "") if best else "",
                speed_up(whole),
                f"{other['place']}: {speed_up(other)}" if other else "",
                value(at(figures(found, run, "kept"), arm), 3) or "absent",
                to_know(run),
            ]
        )
    rows += _quoted(found)
    if not rows:
        return None
    head = [
        "run",
        "hardware",
        "no drafter, tokens/s",
        "best arm",
        f"speed-up ({LEVEL})",
        "verdict",
        f"whole reply ({LEVEL})",
        f"sampled otherwise ({LEVEL})",
        "kept",
        "to know",
    ]
    text = (
        "One request at a time. The interval of the best of several arms is wide enough for having "
        "picked it; every arm is in the figure of compare.html and in compare.csv."
    )
    return Section(
        "Speed", text, [Table("Speed without a drafter and with the best one", head, rows)]
    )


def _quoted(found: Found) -> list[list[str]]:
    """The published headline figures of each rig, as rows of the table of speeds."""
    rows = []
    for rig in dict.fromkeys(row["rig"] for row in found["published"]):
        own = {
            row["quantity"]: row
            for row in found["published"]
            if row["rig"] == rig and row["what"] == "speed"
        }
        none, up = own.get("tokens_per_second"), own.get("speed_up")
        if none and up:
            length = own["best_draft_length"]["value"] if "best_draft_length" in own else None
            rows.append(
                [
                    f"{short(rig)}, PUBLISHED",
                    none["card"],
                    none["words"].split()[0],
                    f"n={length}" if length else "",
                    f"{up['words']} (no interval)",
                    "",
                    "",
                    "",
                    "",
                    f"{none['source']}; not measured here",
                ]
            )
    return rows
