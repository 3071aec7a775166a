"""Its part of the compare page."""

from common.measure.sections import Found, Section, Table, at, figures, of, short, to_know, value


def section(found: Found) -> Section | None:
    rows = []
    for run in of(found, "cost"):
        by_cost = figures(found, run, "break_even_by_cost")
        for row in figures(found, run, "step_cost"):
            words = (row["note"] or "").removeprefix("break-even: ")
            worked_out = at(by_cost, row["arm"])
            rows.append(
                [
                    short(run["run"]),
                    run["hardware"],
                    row["arm"],
                    value(row, 2),
                    words,
                    (worked_out["note"] or "") if worked_out else "never",
                    to_know(run),
                ]
            )
    if not rows:
        return None
    head = [
        "run",
        "hardware",
        "draft length",
        "step cost",
        "break-even acceptance",
        "by cost",
        "to know",
    ]
    text = (
        "Random weights and a set acceptance: what a step of drafting costs, and from which "
        "acceptance on it would pay."
    )
    return Section("Cost", text, [Table("What drafting costs", head, rows)])
