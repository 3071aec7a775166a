"""Its part of the compare page."""

from common.kinds.accuracy.pairing import WORDS
from common.measure import page
from common.measure.rows import given
from common.measure.sections import Found, Section, Table, at, figures, of, short, to_know


def section(found: Found) -> Section | None:
    rows = []
    for run in of(found, "accuracy"):
        scores = figures(found, run, "score")
        for row in figures(found, run, "difference"):
            second, _, first = row["arm"].partition(" less ")
            told = [at(scores, arm, row["place"]) for arm in (first, second)]
            rows.append(
                [
                    short(run["run"]),
                    run["hardware"],
                    row["place"],
                    *(
                        f"{arm}: {one['note']} ({one['value']:.1%})" if one else ""
                        for arm, one in zip((first, second), told, strict=True)
                    ),
                    f"{100 * row['value']:+.2f}",
                    f"{100 * given(row['low']):+.2f} to {100 * given(row['high']):+.2f}",
                    row["note"] or "",
                    WORDS[given(row["verdict"])],
                    to_know(run),
                ]
            )
    if not rows:
        return None
    head = [
        "run",
        "hardware",
        "score",
        "without",
        "with",
        "difference, points",
        page.LEVEL,
        "test",
        "the drafter's answers",
        "to know",
    ]
    text = (
        "The same questions asked with and without the drafter, paired question by question. *Not "
        "a test*: without the drafter too few answers are right for a loss to show, so the "
        "difference says nothing."
    )
    return Section("Answers", text, [Table("Scores with and without the drafter", head, rows)])
