"""Its part of the compare page."""

from common.measure.page import LEVEL
from common.measure.sections import Found, Section, Table, at, figures, of, short, speed_up, to_know


def section(found: Found) -> Section | None:
    rows = []
    for run in of(found, "longctx"):
        ups = figures(found, run, "speed_up")
        gone = [*figures(found, run, "gain_gone_at"), *figures(found, run, "deepest_measured")]
        for arm in dict.fromkeys(up["arm"] for up in ups):
            own = [up for up in ups if up["arm"] == arm]
            ends = at(gone, arm)
            rows.append(
                [
                    short(run["run"]),
                    run["hardware"],
                    arm,
                    f"{own[0]['place']}: {speed_up(own[0])}",
                    f"{own[-1]['place']}: {speed_up(own[-1])}",
                    (ends["note"] or "") if ends else "",
                    to_know(run),
                ]
            )
    if not rows:
        return None
    head = [
        "run",
        "hardware",
        "arm",
        f"shallowest ({LEVEL})",
        f"deepest ({LEVEL})",
        "where the gain ends",
        "to know",
    ]
    return Section(
        "Long context",
        "Speed-up over no drafter with so many tokens in front.",
        [Table("How deep the gain reaches", head, rows)],
    )
