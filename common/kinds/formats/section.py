"""Its part of the compare page."""

from common.measure.page import LEVEL
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
    for run in of(found, "formats"):
        kept = figures(found, run, "kept")
        over = [
            row
            for row in found["figures"]
            if row["run"] == run["run"] and row["quantity"].startswith("speed_over_")
        ]
        for up in figures(found, run, "speed_up"):
            rows.append(
                [
                    short(run["run"]),
                    run["hardware"],
                    up["arm"],
                    speed_up(up),
                    up["verdict"] or "",
                    speed_up(at(over, up["arm"])) or "1 (itself)",
                    value(at(kept, up["arm"]), 3),
                    to_know(run),
                ]
            )
    if not rows:
        return None
    head = [
        "run",
        "hardware",
        "format",
        f"speed-up ({LEVEL})",
        "verdict",
        f"over the rig's own ({LEVEL})",
        "kept",
        "to know",
    ]
    return Section(
        "Drafter formats",
        "The same drafter in several formats.",
        [Table("Formats of the drafter", head, rows)],
    )
