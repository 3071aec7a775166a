"""The text of a speed report."""

from pathlib import Path

from common.kinds.speed.schema import Summary
from common.measure import figures, page
from common.measure.journal import Manifest
from common.measure.rows import BASELINE


def render(summary: Summary, manifest: Manifest, folder: Path) -> str:
    """REPORT.md as text; draws the figures into `folder`."""
    pieces = [
        f"# Speed: {summary['rig']}, {manifest['started'][:10]}",
        *page.warnings(summary, manifest),
        f"**{answer(summary, manifest)}**",
        "## Result",
        _headline(summary),
        "Speeds are the server's own timings, one request at a time, greedy. The interval is "
        f"{page.LEVEL} over prompts; *spread* is between rounds. *Kept* is accepted over drafted "
        "tokens. docs/METHOD.md explains each.",
        *_figures(summary, folder),
        "## By prompt",
        page.by_prompt(summary["cells"]),
        *_sampled(summary),
        *page.known_answer(summary),
        "## Can this be trusted",
        "\n".join([*page.trust(summary), *_equal_text(summary), page.time_line(summary["time"])]),
        "## What was run",
        page.what_was_run(manifest),
        "## Do it again",
        page.reproduce(manifest),
        "## Not measured",
        "Long prompts, several requests at once, answer quality, energy. Other draft lengths than "
        "those above. What these numbers would be on another card.",
    ]
    return "\n\n".join(part for part in pieces if part) + "\n"


def answer(summary: Summary, manifest: Manifest) -> str:
    """The answer in one sentence."""
    where = page.hardware(manifest)
    arms = [(arm["arm"], up) for arm in summary["arms"] if (up := arm["speed_up"])]
    if not arms:
        return f"On {where}, no arm with a drafter has been measured yet."
    best, up = max(arms, key=lambda arm: arm[1]["ratio"])
    figure = f"{page.ratio(up)} ({page.interval(up)}) the speed of no drafter"
    if up["verdict"] == "pays":
        return f"On {where}, {best} pays: {figure}."
    if up["verdict"] == "loses":
        return f"On {where}, no drafter setting pays; the least bad, {best}, runs at {figure}."
    if up["verdict"] == "even":
        return f"On {where}, no drafter setting is sure to pay; the best, {best}: {figure}."
    return f"On {where}, too little was measured to say; {best} ran at {page.ratio(up)}."


def _headline(summary: Summary) -> str:
    rows = []
    for arm in summary["arms"]:
        up = arm["speed_up"]
        rows.append(
            [
                arm["arm"],
                page.number(arm["tokens_per_second"]),
                page.ratio(up) if up else "1 (baseline)",
                page.interval(up),
                page.percent(up["round_spread"]) if up else "",
                page.kept(arm["kept"]),
                page.number(arm["ttft_ms"]),
                up["verdict"] if up else "",
                page.memory(arm["memory_mib"]),
            ]
        )
    return page.table(
        [
            "arm",
            "tokens/s",
            "speed-up",
            page.LEVEL,
            "spread",
            "kept",
            "TTFT ms",
            "verdict",
            page.memory_title(summary["arms"]),
        ],
        rows,
    )


def _figures(summary: Summary, folder: Path) -> list[str]:
    found = []
    drafting = [(arm["arm"], up) for arm in summary["arms"] if (up := arm["speed_up"])]
    if drafting:
        dots = [(cell["arm"], cell["speed_up"]) for cell in summary["cells"]]
        figures.speed_up(folder / "figures" / "speed_up.svg", drafting, dots)
        found.append("![Speed-up over no drafter, per arm](figures/speed_up.svg)")
    with_counts = [
        (arm["arm"], kept) for arm in summary["arms"] if arm["speed_up"] and (kept := arm["kept"])
    ]
    if with_counts:
        figures.kept(folder / "figures" / "kept.svg", with_counts)
        found.append("![Share of drafts kept, per position](figures/kept.svg)")
    return found


def _sampled(summary: Summary) -> list[str]:
    rows = [
        [
            arm["arm"],
            page.number(arm["tokens_per_second"]),
            page.ratio(arm["speed_up"]) if arm["speed_up"] else "1 (baseline)",
            page.interval(arm["speed_up"]),
            page.kept(arm["kept"]),
        ]
        for arm in summary["sampled"]
        if arm["tokens_per_second"] is not None
    ]
    if not rows:
        return []
    head = "## At temperature 0.8 (one round)"
    return [head, page.table(["arm", "tokens/s", "speed-up", page.LEVEL, "kept"], rows)]


def _equal_text(summary: Summary) -> list[str]:
    lines = []
    for row in summary["equal_text"]:
        if row["of"] and row["arm"] == BASELINE:
            lines.append(
                f"- Equal text, control: {row['equal']} of {row['of']} replies without drafter are "
                "the same as in the first round."
            )
        elif row["of"]:
            lines.append(
                f"- Equal text, {row['arm']}: {row['equal']} of {row['of']} greedy replies are the "
                "same as without drafter."
            )
    return lines
