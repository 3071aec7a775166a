"""Its part of the compare page."""

from common.kinds.tune.rows import CONFIRMED
from common.measure.page import LEVEL
from common.measure.sections import Found, Section, Table, at, figures, of, short, speed_up, to_know


def section(found: Found) -> Section | None:
    rows = []
    for run in of(found, "tune"):
        ups = figures(found, run, "speed_up")
        for over in figures(found, run, "speed_over_current"):
            over_none = at(ups, over["arm"], CONFIRMED)
            rows.append(
                [
                    short(run["run"]),
                    run["hardware"],
                    over["arm"],
                    speed_up(over),
                    over["verdict"] or "",
                    speed_up(over_none),
                    to_know(run),
                ]
            )
    if not rows:
        return None
    head = [
        "run",
        "hardware",
        "setting",
        f"over the current setting ({LEVEL})",
        "verdict",
        f"over no drafter ({LEVEL})",
        "to know",
    ]
    text = "What tune confirmed, on prompts that were not used to choose it."
    return Section("Tuning", text, [Table("Settings confirmed by tune", head, rows)])
