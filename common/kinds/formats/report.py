"""The text of a formats report."""

from pathlib import Path

from common.kinds.formats.schema import Summary
from common.measure import figures, page
from common.measure.journal import Manifest
from common.measure.summary import MemoryMib


def render(summary: Summary, manifest: Manifest, folder: Path) -> str:
    """REPORT.md as text; draws the figure into `folder`."""
    pieces = [
        f"# Drafter formats: {summary['rig']}, {manifest['started'][:10]}",
        *page.warnings(summary, manifest),
        f"**{answer(summary, manifest)}**",
        "## Result",
        _headline(summary),
        f"Draft length {summary['draft_length']}. Speeds are the server's own timings, one request "
        f"at a time; the intervals are {page.LEVEL} over prompts and server starts, *each round* "
        "has every round's speed-up. *Kept* is accepted over drafted tokens. Memory is the largest "
        "over this arm's servers: *ready* before the first prompt, *peak* in the trials. It holds "
        "the model too, so look at the differences.",
        *_figure(summary, folder),
        "## Same replies",
        "\n".join(_equal(summary)),
        "## By prompt",
        page.by_prompt(summary["cells"], "drafter"),
        *page.known_answer(summary),
        "## Can this be trusted",
        "\n".join([*page.trust(summary), page.time_line(summary["time"])]),
        "## What was run",
        _files(summary),
        page.what_was_run(manifest, summary["launch"]),
        "## Do it again",
        page.reproduce(manifest),
        "## Not measured",
        "Other draft lengths, the model's own format, long prompts, several requests at once, "
        "answer quality. What these numbers would be on another card.",
    ]
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


def answer(summary: Summary, manifest: Manifest) -> str:
    """The answer in one sentence."""
    arms = [(arm["arm"], up) for arm in summary["arms"] if (up := arm["speed_up"])]
    if not arms:
        return f"On {page.hardware(manifest)}, no drafter has been measured yet."
    told = ", ".join(f"{arm} {page.ratio(up)} ({up['verdict']})" for arm, up in arms)
    equal = summary["all_equal"]
    return (
        f"On {page.hardware(manifest)}, at draft length {summary['draft_length']}, over no "
        f"drafter: {told}; the greedy reply is the same in all formats for {equal['equal']} of "
        f"{equal['of']} prompts."
    )


def _headline(summary: Summary) -> str:
    rows = []
    for arm in summary["arms"]:
        up, over, file = arm["speed_up"], arm["over_own"], arm["file"]
        ready, peak = _memory(arm["memory_mib"])
        rows.append(
            [
                arm["arm"],
                page.number(file["size"] / 1e6) if file else "",
                page.number(arm["tokens_per_second"]),
                page.ratio(up) if up else "1 (baseline)",
                page.interval(up),
                page.each_round(up),
                up["verdict"] if up else "",
                f"{page.ratio(over)} ({page.interval(over)})" if over else "",
                page.kept(arm["kept"]),
                page.number(ready),
                page.number(peak),
            ]
        )
    unit = page.memory_title(summary["arms"])
    head = [
        "drafter",
        "file MB",
        "tokens/s",
        "speed-up",
        page.LEVEL,
        "each round",
        "verdict",
        f"over {summary['own']} ({page.LEVEL})",
        "kept",
        f"{unit}, ready",
        f"{unit}, peak",
    ]
    return page.table(head, rows)


def _memory(found: MemoryMib) -> tuple[float | None, float | None]:
    """Memory at ready and at peak: of the card if there is one, else of the process."""
    if found["card_peak"] is None:
        return found["process_ready"], found["process_peak"]
    return found["card_ready"], found["card_peak"]


def _figure(summary: Summary, folder: Path) -> list[str]:
    drafting = [(arm["arm"], up) for arm in summary["arms"] if (up := arm["speed_up"])]
    if not drafting:
        return []
    dots = [(cell["arm"], cell["speed_up"]) for cell in summary["cells"]]
    figures.speed_up(folder / "figures" / "speed_up.svg", drafting, dots)
    return ["![Speed-up over no drafter, per format](figures/speed_up.svg)"]


def _equal(summary: Summary) -> list[str]:
    equal = summary["all_equal"]
    lines = [f"- Q4_0, Q8_0 and BF16 all alike: {equal['equal']} of {equal['of']} prompts."]
    for arm in summary["arms"]:
        if arm["equal_own"]:
            same = arm["equal_own"]
            lines.append(f"- {arm['arm']} and {summary['own']}: {same['equal']} of {same['of']}.")
    for arm in summary["arms"]:
        if arm["equal_none"]:
            same = arm["equal_none"]
            lines.append(f"- {arm['arm']} and no drafter: {same['equal']} of {same['of']}.")
    return lines


def _files(summary: Summary) -> str:
    rows = [
        [arm["arm"], file["name"], f"{file['size']:,}", f"`{file['sha256']}`"]
        for arm in summary["arms"]
        if (file := arm["file"])
    ]
    return page.table(["drafter", "file", "bytes", "SHA-256"], rows)
