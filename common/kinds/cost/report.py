"""The text of a cost report."""

from pathlib import Path

from common.kinds.cost.schema import BreakEven, Summary
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
        "acceptance. Speeds are the server's own timings, one request at a time; the intervals "
        f"are {page.LEVEL} over replies.",
        *_figure(summary, folder),
        "## Break-even",
        _break_even(summary),
        "*Between points* draws straight lines between the measured acceptances; its interval is "
        "where the ends of the speed-ups' intervals cross 1. *By cost* is the p at which "
        "1 + p + ... + p^n equals the step cost, from all acceptances together.",
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
        f"made-up weights, drafting pays from these acceptances on: {told or 'not measured'}."
    )


def in_words(row: BreakEven) -> str:
    """Where one draft length breaks even."""
    if row["at"] is not None:
        low = "below" if row["low"] is None else f"{row['low']:.2f}"
        high = "above" if row["high"] is None else f"{row['high']:.2f}"
        return f"{row['at']:.2f} ({page.LEVEL}: {low} to {high})"
    if row["why"] == "below":
        by_cost, least = row["by_cost"], row["least"]
        guess = f", about {by_cost:.2f} by cost" if by_cost and least and by_cost < least else ""
        return f"below {least:g}, the least measured{guess}"
    if row["why"] == "above":
        return f"above {row['most']:g}, the most measured"
    return "not measured"


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
        [str(row["draft_length"]), in_words(row), page.number(row["step_cost"], 2), _by_cost(row)]
        for row in summary["break_even"]
    ]
    return page.table(["n", "between points", "step cost", "by cost"], rows)


def _by_cost(row: BreakEven) -> str:
    if row["step_cost"] is None:
        return ""
    return "never" if row["by_cost"] is None else f"{row['by_cost']:.2f}"
