"""The compare page's sections: titles, words and tables, the same in Markdown and in HTML."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.kinds import rows as measured
from common.measure import page
from common.measure.rows import BASELINE

Found = Mapping[str, Any]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    title: str
    text: str
    tables: list[Table] = field(default_factory=list)


READING = (
    "Intervals are 95%: of a speed-up over prompts, of a score over questions. *pays* means the "
    "whole interval lies above 1, *loses* below, *even* that it holds 1. *Published* figures were "
    "measured by others and are quoted; nothing published was measured here. A ratio is given only "
    "between runs, or between a run and a published figure, that are equal in engine, model file, "
    "drafter file, prompts, settings and length, and measured by committed code; of the others it "
    "is said what differs. A ratio's interval is over prompts: it does not hold what another day, "
    "or another card of the same name, would change."
)


def sections(found: Found) -> list[Section]:
    """All sections that have something to say."""
    some = [
        _speed(found), _longctx(found), _sweep(found), _accuracy(found), _identity(found),
        _formats(found), _cost(found), _others(found), _published(found), _ratios(found),
        _refused(found), _runs(found),
    ]  # fmt: skip
    return [section for section in some if section is not None]


def short(name: str) -> str:
    """A run or rig without what they all share."""
    return name.removeprefix("local-llamacpp-")


def of(found: Found, *kinds: str) -> list[Row]:
    return [one for one in found["runs"] if one["what"] in kinds]


def figures(found: Found, run: Row, quantity: str) -> list[Row]:
    return [row for row in found["figures"]
            if row["run"] == run["run"] and row["quantity"] == quantity]  # fmt: skip


def at(rows: Iterable[Row], arm: str, place: str = "") -> Row | None:
    return next((row for row in rows if (row["arm"], row["place"]) == (arm, place)), None)


def _value(row: Row | None, digits: int) -> str:
    return page.number(row["value"], digits) if row else ""


def _up(row: Row | None) -> str:
    """A speed-up with its interval."""
    return f"{row['value']:.3f}x ({bounds(row)})" if row else ""


def bounds(row: Row) -> str:
    low, high = row["low"], row["high"]
    return "no interval" if low is None or high is None else f"{low:.3f} to {high:.3f}"


def _warn(run: Row) -> str:
    return "; ".join(run["labels"])


def _speed(found: Found) -> Section | None:
    rows = []
    for run in of(found, "speed"):
        speeds, ups = figures(found, run, "tokens_per_second"), figures(found, run, "speed_up")
        best = max((up for up in ups if not up["place"]), key=lambda up: up["value"], default=None)
        arm = best["arm"] if best else ""
        rows.append([
            short(run["run"]), run["hardware"], _value(at(speeds, BASELINE), 1), arm, _up(best),
            best["verdict"] if best else "", _up(at(ups, arm, "temperature 0.8")),
            _value(at(figures(found, run, "kept"), arm), 3) or "absent", _warn(run),
        ])  # fmt: skip
    rows += _quoted(found)
    if not rows:
        return None
    head = ["run", "hardware", "no drafter, tokens/s", "best arm", "speed-up (95%)", "verdict",
            "at temperature 0.8 (95%)", "kept", "to know"]  # fmt: skip
    text = ("One request at a time, greedy unless it says otherwise. The best of several arms is "
            "named, which flatters it a little; every arm is in the figure of compare.html and in "
            "compare.csv.")  # fmt: skip
    return Section("Speed", text, [Table("Speed without a drafter and with the best one", head,
                                         rows)])  # fmt: skip


def _quoted(found: Found) -> list[list[str]]:
    """The published headline figures of each rig, as rows of the table of speeds."""
    rows = []
    for rig in dict.fromkeys(row["rig"] for row in found["published"]):
        own = {row["quantity"]: row for row in found["published"]
               if row["rig"] == rig and row["what"] == "speed"}  # fmt: skip
        none, up = own.get("tokens_per_second"), own.get("speed_up")
        if none and up:
            length = own["best_draft_length"]["value"] if "best_draft_length" in own else None
            rows.append([f"{short(rig)}, PUBLISHED", none["card"], none["words"].split()[0],
                         f"n={length}" if length else "", f"{up['words']} (no interval)", "", "",
                         "", f"{none['source']}; not measured here"])  # fmt: skip
    return rows


def _longctx(found: Found) -> Section | None:
    rows = []
    for run in of(found, "longctx"):
        ups = figures(found, run, "speed_up")
        gone = [*figures(found, run, "gain_gone_at"), *figures(found, run, "deepest_measured")]
        for arm in dict.fromkeys(up["arm"] for up in ups):
            own = [up for up in ups if up["arm"] == arm]
            ends = at(gone, arm)
            rows.append([short(run["run"]), run["hardware"], arm,
                         f"{own[0]['place']}: {_up(own[0])}", f"{own[-1]['place']}: {_up(own[-1])}",
                         ends["note"] if ends else "", _warn(run)])  # fmt: skip
    if not rows:
        return None
    head = ["run", "hardware", "arm", "shallowest (95%)", "deepest (95%)", "where the gain ends",
            "to know"]  # fmt: skip
    return Section("Long context", "Speed-up over no drafter with so many tokens in front.",
                   [Table("How deep the gain reaches", head, rows)])  # fmt: skip


def _sweep(found: Found) -> Section | None:
    rows = []
    for run in of(found, "sweep", "longmixed"):
        ups = figures(found, run, "speed_up")
        for turn in (*figures(found, run, "gain_gone_at"), *figures(found, run, "most_measured")):
            own = [up for up in ups if up["arm"] == turn["arm"]
                   and up["place"].startswith(f"{turn['place']}, ")]  # fmt: skip
            if own:
                rows.append([short(run["run"]), run["hardware"], turn["place"], turn["arm"],
                             f"{own[0]['place']}: {_up(own[0])}",
                             f"{own[-1]['place']}: {_up(own[-1])}", turn["note"],
                             _warn(run)])  # fmt: skip
    if not rows:
        return None
    head = ["run", "hardware", "prompts", "arm", "fewest at once (95%)", "most at once (95%)",
            "where the gain ends", "to know"]  # fmt: skip
    text = ("Output tokens per second of the whole batch, with the drafter over without, in the "
            "same KV layout.")  # fmt: skip
    return Section("Many requests at once", text,
                   [Table("Up to how many requests the drafter gains", head, rows)])  # fmt: skip


def _accuracy(found: Found) -> Section | None:
    rows = []
    for run in of(found, "accuracy"):
        scores = figures(found, run, "score")
        for row in figures(found, run, "difference"):
            second, _, first = row["arm"].partition(" less ")
            told = [at(scores, arm, row["place"]) for arm in (first, second)]
            rows.append([
                short(run["run"]), run["hardware"], row["place"],
                *(f"{arm}: {one['note']} ({one['value']:.1%})" if one else ""
                  for arm, one in zip((first, second), told, strict=True)),
                f"{100 * row['value']:+.2f}",
                f"{100 * row['low']:+.2f} to {100 * row['high']:+.2f}",
                row["note"], _warn(run),
            ])  # fmt: skip
    if not rows:
        return None
    head = ["run", "hardware", "score", "without", "with", "difference, points", "95%", "test",
            "to know"]  # fmt: skip
    text = "The same questions asked with and without the drafter, paired question by question."
    return Section("Answers", text, [Table("Scores with and without the drafter", head, rows)])


def _identity(found: Found) -> Section | None:
    rows = [
        [short(run["run"]), run["hardware"],
         f"{row['arm']}, asked again" if row["place"] == "control" else row["arm"],
         f"{row['value']} {row['note']}", _warn(run)]
        for run in of(found, "identity")
        for row in figures(found, run, "equal_replies")
    ]  # fmt: skip
    if not rows:
        return None
    return Section("Same text", "Greedy replies equal to those without a drafter.",
                   [Table("Equal replies", ["run", "hardware", "arm", "equal", "to know"],
                          rows)])  # fmt: skip


def _formats(found: Found) -> Section | None:
    rows = []
    for run in of(found, "formats"):
        kept = figures(found, run, "kept")
        over = [row for row in found["figures"] if row["run"] == run["run"]
                and row["quantity"].startswith("speed_over_")]  # fmt: skip
        for up in figures(found, run, "speed_up"):
            rows.append([short(run["run"]), run["hardware"], up["arm"], _up(up), up["verdict"],
                         _up(at(over, up["arm"])) or "1 (itself)",
                         _value(at(kept, up["arm"]), 3), _warn(run)])  # fmt: skip
    if not rows:
        return None
    head = ["run", "hardware", "format", "speed-up (95%)", "verdict", "over the rig's own (95%)",
            "kept", "to know"]  # fmt: skip
    return Section("Drafter formats", "The same drafter in several formats.",
                   [Table("Formats of the drafter", head, rows)])  # fmt: skip


def _cost(found: Found) -> Section | None:
    rows = []
    for run in of(found, "cost"):
        by_cost = figures(found, run, "break_even_by_cost")
        for row in figures(found, run, "step_cost"):
            words = row["note"].removeprefix("break-even: ")
            rows.append([short(run["run"]), run["hardware"], row["arm"], _value(row, 2), words,
                         _value(at(by_cost, row["arm"]), 2), _warn(run)])  # fmt: skip
    if not rows:
        return None
    head = ["run", "hardware", "draft length", "step cost", "break-even acceptance", "by cost",
            "to know"]  # fmt: skip
    text = ("Random weights and a set acceptance: what a step of drafting costs, and from which "
            "acceptance on it would pay.")  # fmt: skip
    return Section("Cost", text, [Table("What drafting costs", head, rows)])


def _others(found: Found) -> Section | None:
    rows = [[short(run["run"]), run["what"], run["answer"], _warn(run)]
            for run in found["runs"] if run["what"] not in measured.KINDS]  # fmt: skip
    if not rows:
        return None
    return Section("Other runs", "Their reports say more; there is nothing to set side by side.",
                   [Table("Runs of other kinds", ["run", "kind", "answer", "to know"],
                          rows)])  # fmt: skip


def _published(found: Found) -> Section | None:
    """A table per rig; the columns of what was measured only where something was."""
    tables = []
    for rig in dict.fromkeys(row["rig"] for row in found["published"]):
        own = [row for row in found["published"] if row["rig"] == rig]
        any_beside = any(row["beside"] for row in own)
        rows = [
            [row["title"], row["words"], row["conditions"],
             *([_beside(row["beside"]), _over(row["beside"])] if any_beside else [])]
            for row in own
        ]  # fmt: skip
        head = ["figure", "published", "published under"]
        if any_beside:
            head += ["measured here", "measured / published"]
        said = "published" if any_beside else "published; nothing of it measured here"
        tables.append(Table(f"{rig}, {own[0]['card']}: {said}", head, rows))
    if not tables:
        return None
    source = "; ".join(dict.fromkeys(row["source"] for row in found["published"]))
    text = (f"Quoted, not measured here: {source}. A ratio stands only where card, engine, "
            "settings and draft length are equal and the figure does not depend on prompts of the "
            "study's own.")  # fmt: skip
    return Section("Published beside measured", text, tables)


def _beside(beside: Row | None) -> str:
    if beside is None:
        return "not measured here"
    told = f"{beside['arm']}: {beside['value']:g} {beside['unit']}"
    if beside["low"] is not None and beside["high"] is not None:
        told += f" ({bounds(beside)})"
    return f"{told}, {short(beside['run'])}"


def _over(beside: Row | None) -> str:
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
    for between, caption in (("hardware", "Speed of one hardware over another's"),
                             ("repeats", "The same, measured twice")):  # fmt: skip
        rows = [
            [short(pair["first"]), short(pair["second"]), row["arm"], row["place"],
             QUANTITIES[row["quantity"]],
             "refused: " + "; ".join(row["refused"]) if row["refused"] else f"{row['ratio']:.3f}",
             "" if row["refused"] else bounds(row), "; ".join(pair["labels"])]
            for pair in found["pairs"] if pair["between"] == between
            for row in pair["ratios"]
        ]  # fmt: skip
        if rows:
            head = ["first", "second", "arm", "where", "of what", "first / second", "95%",
                    "also different"]  # fmt: skip
            tables.append(Table(caption, head, rows))
    if not tables:
        return None
    text = ("Paired cell by cell and round by round. *Gain* is the speed-up over no drafter: above "
            "1, the first has more of it.")  # fmt: skip
    return Section("Ratios", text, tables)


QUANTITIES = {"tokens_per_second": "speed", "speed_up": "gain"}


def _refused(found: Found) -> Section | None:
    rows = [[pair["what"], short(pair["first"]), short(pair["second"]), "; ".join(pair["refused"])]
            for pair in found["pairs"] if pair["refused"]]  # fmt: skip
    if not rows:
        return None
    return Section("Not compared", "Runs of one kind whose ratio would mean nothing, and why.",
                   [Table("Refused comparisons", ["kind", "first", "second", "what differs"],
                          rows)])  # fmt: skip


def _runs(found: Found) -> Section:
    rows = [
        [short(run["run"]), run["what"], run["started"][:10], run["hardware"],
         run["engine"] or "none",
         "; ".join(f"{role} {file['sha256'][:12]}" for role, file in run["files"].items()),
         (run["prompts_sha256"] or "")[:12], (run["harness"] or "unknown")[:12], run["path"],
         _warn(run)]
        for run in found["runs"]
    ]  # fmt: skip
    head = ["run", "kind", "date", "hardware", "engine", "files (SHA-256)", "prompts (SHA-256)",
            "harness commit", "folder", "to know"]  # fmt: skip
    return Section("The runs", "Each folder holds the report and everything it was made from.",
                   [Table("Runs compared", head, rows)])  # fmt: skip
