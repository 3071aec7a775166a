"""The text of a cost report."""

from pathlib import Path

from common.kinds.cost.schema import BreakEven, Summary, Times
from common.measure import figures, page
from common.measure.journal import Manifest

TITLES = {
    "e2b": "Gemma 4 E2B",
    "e4b": "Gemma 4 E4B",
    "12b": "Gemma 4 12B",
    "26b": "Gemma 4 26B-A4B",
    "31b": "Gemma 4 31B",
    "tiny": "the known-answer pair",
}
NO_INTERVAL = "no interval"


def render(summary: Summary, manifest: Manifest, folder: Path) -> str:
    """REPORT.md as text; draws the figure into `folder`."""
    pieces = [
        f"# What drafting costs: {summary['rig']}, {manifest['started'][:10]}",
        _face(summary),
        *page.warnings(summary, manifest),
        f"**{answer(summary, manifest)}**",
        "## Result",
        _table(summary),
        "*Acceptance* is how likely a drafted token is accepted, given that those before it were; "
        "it is set, and each reply draws from its own seed. *Kept* is accepted over drafted "
        "tokens, beside what it comes to on average. *Step cost* is the time of one step (draft n "
        "tokens, check them) over that of one token without drafter; it does not depend on the "
        "acceptance. Speeds are the server's own timings, one request at a time. The interval "
        f"is {page.LEVEL} over replies and server starts, for each arm alone; *each round* has the "
        "speed-up of every round.",
        *_figure(summary, folder),
        "## Break-even",
        _break_even(summary),
        "*Between points* draws straight lines between the measured acceptances; its interval is "
        "where the ends of the speed-ups' intervals cross 1. *By cost* is the p at which "
        "1 + p + ... + p^n equals the step cost, from all acceptances together, with the ends of "
        "the step cost's interval taken the same way; outside the measured acceptances it is "
        "worked out, not measured.",
        *_cheaper(summary),
        "## Can this be trusted",
        "\n".join([*page.trust(summary), page.time_line(summary["time"])]),
        "## What was run",
        page.what_was_run(manifest, summary["launch"]),
        "## Do it again",
        page.reproduce(manifest),
        "## Not measured",
        "What a trained drafter's acceptance is: that takes the real files, and `make speed`. Long "
        "prompts, several requests at once. What these numbers would be on another card.",
    ]
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


def answer(summary: Summary, manifest: Manifest) -> str:
    """The answer in one sentence."""
    told = "; ".join(f"n={row['draft_length']} {in_words(row)}" for row in summary["break_even"])
    return (
        f"On {page.hardware(manifest)}, with the layer sizes of {TITLES[summary['shape']]} and "
        "made-up weights, the acceptance at which drafting breaks even is: "
        f"{told or 'not measured'}."
    )


def in_words(row: BreakEven) -> str:
    """Where one draft length breaks even, as far as it was measured."""
    if row["least"] is None:
        return "not measured"
    unsure = "" if _has_interval(row) else f", {NO_INTERVAL}"
    if row["at"] is not None:
        low = f"below {row['least']:g}" if row["low"] is None else f"{row['low']:.2f}"
        high = f"above {row['most']:g}" if row["high"] is None else f"{row['high']:.2f}"
        between = f"{page.LEVEL}: {low} to {high}" if _has_interval(row) else NO_INTERVAL
        return f"{row['at']:.2f} ({between})"
    ends = dict.fromkeys(f"{end:g}" for end in (row["least"], row["most"]))
    measured = f"measured ({' to '.join(ends)}{unsure})"
    if row["why"] == "mixed":
        return f"not clear: faster at some and slower at higher acceptances {measured}"
    word = "faster" if row["why"] == "below" else "slower"
    sure = "" if row["sure"] or unsure else ", but not surely so at each"
    return f"not found: {word} at every acceptance {measured}{sure}"


def by_cost_in_words(row: BreakEven) -> str:
    """The break-even that follows from the step cost, with its interval."""
    found = row["by_cost"]
    if found is None:
        return ""
    value, low, high = (
        "never" if at is None else f"{at:.2f}"
        for at in (found["value"], found["low"], found["high"])
    )
    if not _has_interval(row):
        return f"{value} ({NO_INTERVAL})"
    return value if low == high == "never" else f"{value} ({page.LEVEL}: {low} to {high})"


def _has_interval(row: BreakEven) -> bool:
    return row["step_cost"] is not None and row["step_cost"]["low"] is not None


def _face(summary: Summary) -> str:
    weights = "made up" if summary["shape"] == "tiny" else "random"
    return (
        f"> **The weights are {weights} and the text is meaningless.** This pair has the layer "
        f"sizes of {TITLES[summary['shape']]}, and how many drafted tokens are accepted is set by "
        "hand (`--spec-synth-rates`). Only what drafting costs is measured, not whether a real "
        "drafter is good."
    )


def _table(summary: Summary) -> str:
    rows = []
    for arm in summary["arms"]:
        up = arm["speed_up"]
        drafted = arm["draft_length"] is not None
        rows.append(
            [
                str(arm["draft_length"]) if drafted else arm["arm"],
                f"{arm['accept']:g}" if drafted else "",
                page.number(arm["tokens_per_second"]),
                page.ratio(up) if up else ("" if drafted else "1 (baseline)"),
                page.interval(up),
                page.each_round(up),
                up["verdict"] if up else "",
                f"{page.kept(arm['kept'])} ({arm['kept_set']:.3f})" if drafted else "",
                page.number(arm["step_cost"], 2),
                page.memory(arm["memory_mib"]),
            ]
        )
    head = [
        "n",
        "acceptance",
        "tokens/s",
        "speed-up",
        page.LEVEL,
        "each round",
        "verdict",
        "kept (on average)",
        "step cost",
        page.memory_title(summary["arms"]),
    ]
    return page.table(head, rows)


def _figure(summary: Summary, folder: Path) -> list[str]:
    series = {
        f"n={row['draft_length']}": sorted(
            (
                (accept, up)
                for arm in summary["arms"]
                if arm["draft_length"] == row["draft_length"] and (up := arm["speed_up"])
                if (accept := arm["accept"]) is not None
            ),
            key=lambda point: point[0],
        )
        for row in summary["break_even"]
    }
    if not any(series.values()):
        return []
    figures.lines(folder / "figures" / "acceptance.svg", series, "acceptance of a drafted token")
    return ["![Speed-up over no drafter by acceptance](figures/acceptance.svg)"]


def _break_even(summary: Summary) -> str:
    rows = [
        [str(row["draft_length"]), in_words(row), _times(row["step_cost"]), by_cost_in_words(row)]
        for row in summary["break_even"]
    ]
    return page.table(["n", "between points", "step cost", "by cost"], rows)


def _times(found: Times | None) -> str:
    if found is None:
        return ""
    if found["low"] is None or found["high"] is None:
        return f"{found['value']:.2f} ({NO_INTERVAL})"
    return f"{found['value']:.2f} ({page.LEVEL}: {found['low']:.2f} to {found['high']:.2f})"


def _cheaper(summary: Summary) -> list[str]:
    """A remark where a step of a longer draft took less time than one of the next shorter."""
    found = []
    for row in summary["break_even"]:
        over = row["over_shorter"]
        if over is None or over["value"] >= 1:
            continue
        sure = over["high"] is not None and over["high"] < 1
        found.append(
            f"**A longer draft was cheaper{'' if sure else ', though this is not sure'}**: a step "
            f"at n={row['draft_length']} took {_times(over)} of the time of one at "
            f"n={row['shorter']}, though more is computed in it. Kernels made for some batch sizes "
            "can do that; what did, this run does not tell."
        )
    return found
