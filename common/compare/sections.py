"""The compare page's sections: titles, words and tables, the same in Markdown and in HTML."""

from common import kinds
from common.measure.page import LEVEL
from common.measure.sections import Beside, Found, Section, Table, bounds, short, to_know

READING = (
    f"Intervals are {LEVEL}: of a speed-up over prompts and server starts, of a score over "
    "questions. *pays* means that the whole interval and every round lie above 1, *loses* that "
    "they lie below; anything else is *even*. *Published* figures "
    "were measured by others and are quoted; nothing published was measured here. A ratio is "
    "given only between runs, or between a run and a published figure, that are equal in engine, "
    "model file, drafter file, prompts, settings and length, and measured by committed code; of "
    "the others it is said what differs. A ratio's interval is over prompts and rounds: it does "
    "not hold what another day, or another card of the same name, would change."
)


def sections(found: Found) -> list[Section]:
    """All sections that have something to say: of the measurements, then of what they come to."""
    with_section = {kind.package: kind for kind in kinds.KINDS if kind.section}
    some = [kind.part("section").section(found) for kind in with_section.values()]
    some += [_others(found), _published(found), _ratios(found), _refused(found), _runs(found)]
    return [section for section in some if section is not None]


def _others(found: Found) -> Section | None:
    rows = [
        [short(run["run"]), run["what"], run["answer"], to_know(run)]
        for run in found["runs"]
        if not kinds.of(run["what"]).section
    ]
    if not rows:
        return None
    return Section(
        "Other runs",
        "Their reports say more; there is nothing to set side by side.",
        [Table("Runs of other kinds", ["run", "kind", "answer", "to know"], rows)],
    )


def _published(found: Found) -> Section | None:
    """A table per rig; the columns of what was measured only where something was."""
    tables = []
    for rig in dict.fromkeys(row["rig"] for row in found["published"]):
        own = [row for row in found["published"] if row["rig"] == rig]
        any_beside = any(row["beside"] for row in own)
        rows = [
            [
                row["title"],
                row["words"],
                row["conditions"],
                *([_beside(row["beside"]), _over(row["beside"])] if any_beside else []),
            ]
            for row in own
        ]
        head = ["figure", "published", "published under"]
        if any_beside:
            head += ["measured here", "measured / published"]
        said = "published" if any_beside else "published; nothing of it measured here"
        tables.append(Table(f"{rig}, {own[0]['card']}: {said}", head, rows))
    if not tables:
        return None
    source = "; ".join(dict.fromkeys(row["source"] for row in found["published"]))
    text = (
        f"Quoted, not measured here: {source}. A ratio stands only where card, engine, "
        "settings and draft length are equal and the figure does not depend on prompts of the "
        "study's own."
    )
    return Section("Published beside measured", text, tables)


def _beside(beside: Beside | None) -> str:
    if beside is None:
        return "not measured here"
    told = f"{beside['arm']}: {beside['value']:g} {beside['unit']}"
    if beside["low"] is not None and beside["high"] is not None:
        told += f" ({bounds(beside)})"
    return f"{told}, {short(beside['run'])}"


def _over(beside: Beside | None) -> str:
    """Measured over published, or why that would mean nothing."""
    if beside is None:
        return ""
    if beside["refused"]:
        return "not the same: " + "; ".join(beside["refused"])
    ratio = beside["ratio"]
    if ratio is None:
        return "no ratio of such figures"
    told = f"{ratio['ratio']:.3f}"
    if ratio["low"] is not None and ratio["high"] is not None:
        told += f" ({bounds(ratio)})"
    return "; ".join([told, *beside["labels"]])


def _ratios(found: Found) -> Section | None:
    tables = []
    for between, caption in (
        ("hardware", "Speed of one hardware over another's"),
        ("repeats", "The same, measured twice"),
    ):
        rows = [
            [
                short(pair["first"]),
                short(pair["second"]),
                row["arm"],
                row["place"],
                QUANTITIES[row["quantity"]],
                "refused: " + "; ".join(row["refused"])
                if row["refused"]
                else f"{row['ratio']:.3f}",
                "" if row["refused"] else bounds(row),
                "; ".join(pair["labels"]),
            ]
            for pair in found["pairs"]
            if pair["between"] == between
            for row in pair["ratios"]
        ]
        if rows:
            head = [
                "first",
                "second",
                "arm",
                "where",
                "of what",
                "first / second",
                LEVEL,
                "also different",
            ]
            tables.append(Table(caption, head, rows))
    if not tables:
        return None
    text = (
        "Paired cell by cell and round by round. *Gain* is the speed-up over no drafter: above "
        "1, the first has more of it."
    )
    return Section("Ratios", text, tables)


QUANTITIES = {"tokens_per_second": "speed", "speed_up": "gain"}


def _refused(found: Found) -> Section | None:
    rows = [
        [pair["what"], short(pair["first"]), short(pair["second"]), "; ".join(pair["refused"])]
        for pair in found["pairs"]
        if pair["refused"]
    ]
    if not rows:
        return None
    return Section(
        "Not compared",
        "Runs of one kind whose ratio would mean nothing, and why.",
        [Table("Refused comparisons", ["kind", "first", "second", "what differs"], rows)],
    )


def _runs(found: Found) -> Section:
    rows = [
        [
            short(run["run"]),
            run["what"],
            run["started"][:10],
            run["hardware"],
            run["engine"] or "none",
            "; ".join(f"{role} {file['sha256'][:12]}" for role, file in run["files"].items()),
            (run["prompts_sha256"] or "")[:12],
            (run["harness"] or "unknown")[:12],
            run["path"],
            to_know(run),
        ]
        for run in found["runs"]
    ]
    head = [
        "run",
        "kind",
        "date",
        "hardware",
        "engine",
        "files (SHA-256)",
        "prompts (SHA-256)",
        "harness commit",
        "folder",
        "to know",
    ]
    return Section(
        "The runs",
        "Each folder holds the report and everything it was made from.",
        [Table("Runs compared", head, rows)],
    )
