"""Its part of the compare page."""

from common.kinds.builds.report import VERDICTS
from common.measure.page import LEVEL
from common.measure.sections import Found, Section, Table, at, figures, of, short, speed_up, to_know


def section(found: Found) -> Section | None:
    rows = []
    for run in of(found, "builds"):
        ups = figures(found, run, "speed_up")
        for over in figures(found, run, "speed_over_own_build"):
            own, up = over["arm"].removeprefix("other "), at(ups, over["arm"])
            rows.append(
                [
                    short(run["run"]),
                    run["hardware"],
                    own,
                    speed_up(over),
                    VERDICTS[over["verdict"] or "unknown"],
                    speed_up(at(ups, own)),
                    speed_up(up),
                    to_know(run),
                ]
            )
    if not rows:
        return None
    head = [
        "run",
        "hardware",
        "drafter",
        f"other over own build ({LEVEL})",
        "the other is",
        f"drafter's speed-up, own ({LEVEL})",
        f"in the other ({LEVEL})",
        "to know",
    ]
    text = "Two builds of llama.cpp side by side, each with and without the drafter."
    return Section("Builds", text, [Table("The other build over the rig's own", head, rows)])
