"""Its part of the compare page."""

from common.measure.sections import Found, Section, Table, figures, of, short, to_know


def section(found: Found) -> Section | None:
    rows = [
        [
            short(run["run"]),
            run["hardware"],
            f"{row['arm']}, asked again" if row["place"] == "control" else row["arm"],
            f"{row['value']} {row['note']}",
            to_know(run),
        ]
        for run in of(found, "identity")
        for row in figures(found, run, "equal_replies")
    ]
    if not rows:
        return None
    return Section(
        "Same text",
        "Greedy replies equal to those without a drafter.",
        [Table("Equal replies", ["run", "hardware", "arm", "equal", "to know"], rows)],
    )
