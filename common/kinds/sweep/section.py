"""Its part of the compare page."""

from common.measure.page import LEVEL
from common.measure.sections import Found, Section, Table, figures, of, short, speed_up, to_know


def section(found: Found) -> Section | None:
    rows = []
    for run in of(found, "sweep", "longmixed"):
        ups = figures(found, run, "speed_up")
        for turn in (*figures(found, run, "gain_gone_at"), *figures(found, run, "most_measured")):
            own = [
                up
                for up in ups
                if up["arm"] == turn["arm"] and up["place"].startswith(f"{turn['place']}, ")
            ]
            if own:
                rows.append(
                    [
                        short(run["run"]),
                        run["hardware"],
                        turn["place"],
                        turn["arm"],
                        f"{own[0]['place']}: {speed_up(own[0])}",
                        f"{own[-1]['place']}: {speed_up(own[-1])}",
                        turn["note"] or "",
                        to_know(run),
                    ]
                )
    if not rows:
        return None
    head = [
        "run",
        "hardware",
        "prompts",
        "arm",
        f"fewest at once ({LEVEL})",
        f"most at once ({LEVEL})",
        "where the gain ends",
        "to know",
    ]
    text = (
        "Output tokens per second of the whole batch, with the drafter over without, in the "
        "same KV layout."
    )
    return Section(
        "Many requests at once",
        text,
        [Table("Up to how many requests the drafter gains", head, rows)],
    )
