"""The text of a speed report."""

from pathlib import Path

from common.kinds.speed.schema import Summary
from common.measure import energy, figures, page
from common.measure.journal import Manifest
from common.measure.rows import BASELINE
from common.measure.summary import Interval

DRAWN = {"greedy": "greedy", "sampled": "at temperature 0.8"}
OTHER = {"greedy": "sampled", "sampled": "greedy"}


def render(summary: Summary, manifest: Manifest, folder: Path) -> str:
    """REPORT.md as text; draws the figures into `folder`."""
    pieces = [
        f"# Speed: {summary['rig']}, {manifest['started'][:10]}",
        *page.warnings(summary, manifest),
        f"**{answer(summary, manifest)}**",
        "## Result",
        _headline(summary),
        "Speeds are the server's own timings of writing, one request at a time, "
        f"{DRAWN[summary['headline']]}. The interval is {page.LEVEL} over prompts and server "
        "starts, for each arm alone; *each round* has the speed-up of every round. *Kept* is "
        "accepted over drafted tokens. docs/METHOD.md explains each.",
        *_figures(summary, folder),
        "## What a user waits",
        _waits(summary),
        "TTFT is the time to the first text; *reply* the whole of it, in seconds. Each as half / 9 "
        "in 10 / 99 in 100 of the replies are no slower. *Whole reply* is the speed-up of output "
        f"tokens over all of that time.{f' {page.GAPS_TEXT}' if _closely(summary) else ''}",
        *energy.told(summary["energy"]),
        "## By prompt",
        page.by_prompt(summary["cells"]),
        *_beside(summary),
        *page.known_answer(summary),
        "## Can this be trusted",
        "\n".join([*page.trust(summary), *_equal_text(summary), page.time_line(summary["time"])]),
        "## What was run",
        page.what_was_run(manifest, summary["launch"]),
        "## Do it again",
        page.reproduce(manifest),
        "## Not measured",
        "Long prompts, several requests at once, answer quality. Other draft lengths than those "
        "above. What these numbers would be on another card."
        + energy.not_measured(summary["energy"]),
    ]
    return "\n\n".join(part for part in pieces if part) + "\n"


def answer(summary: Summary, manifest: Manifest) -> str:
    """The answer in one or two sentences."""
    where, best = page.hardware(manifest), summary["best"]
    if best is None:
        return f"On {where}, no arm with a drafter has been measured yet."
    up, name = best["speed_up"], best["arm"]
    picked = f", the best of {best['of']}," if best["of"] > 1 else ""
    drawn = f", {DRAWN['sampled']}" if summary["headline"] == "sampled" else ""
    figure = f"{_figure(up)} the speed of no drafter{_whole(summary, name)}"
    if up["verdict"] == "pays":
        text = f"On {where}{drawn}, {name}{picked} pays: {figure}."
    elif up["verdict"] == "loses":
        least = f"; {name}, the least bad of {best['of']}," if picked else f": {name}"
        text = f"On {where}{drawn}, no drafter setting pays{least} runs at {figure}."
    elif up["verdict"] == "even":
        text = (
            f"On {where}{drawn}, no drafter setting is sure to pay; {name}{picked} ran at {figure}."
        )
    else:
        return (
            f"On {where}{drawn}, too little was measured to say; {name}{picked} ran at "
            f"{page.ratio(up)}."
        )
    return text + _disagrees(summary, name, up)


def _figure(up: Interval) -> str:
    return f"{page.ratio(up)} ({page.interval(up)})"


def _whole(summary: Summary, name: str) -> str:
    """The speed-up of whole replies, reading and waiting included."""
    (up,) = (arm["whole_reply"] for arm in summary["arms"] if arm["arm"] == name)
    return f", {_figure(up)} in whole replies" if up else ""


def _disagrees(summary: Summary, name: str, up: Interval) -> str:
    """What the best arm does with the other sampling, where that says something else."""
    other = next((arm["speed_up"] for arm in summary["beside"] if arm["arm"] == name), None)
    if other is None or other["verdict"] == up["verdict"]:
        return ""
    sure = {"pays": "it pays", "loses": "it loses"}.get(other["verdict"], "that is not sure")
    drawn = DRAWN[OTHER[summary["headline"]]]
    return f" {drawn[0].upper()}{drawn[1:]}, {sure}: {_figure(other)}."


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
                page.each_round(up),
                page.kept(arm["kept"]),
                up["verdict"] if up else "",
                page.memory(arm["memory_mib"]),
            ]
        )
    head = ["arm", "tokens/s", "speed-up", page.LEVEL, "each round", "kept", "verdict"]
    return page.table([*head, page.memory_title(summary["arms"])], rows)


def _waits(summary: Summary) -> str:
    head = ["arm", "whole reply", page.LEVEL, "TTFT ms", "reply s", "reading, tokens/s"]
    rows = []
    # Where nothing thinks, the first text is the first content.
    thinks = any(arm["content"] != arm["ttft"] for arm in summary["arms"] if arm["content"])
    for arm in summary["arms"]:
        up = arm["whole_reply"]
        row = [
            arm["arm"],
            page.ratio(up) if up else "1 (baseline)",
            page.interval(up),
            page.percentiles(arm["ttft"]),
            page.percentiles(arm["reply"], per=1000, digits=2),
            page.number(arm["reading_per_second"]),
        ]
        row += [page.percentiles(arm["content"])] if thinks else []
        rows.append([*row, *(page.gaps(arm["gaps"]) if _closely(summary) else [])])
    head += ["to the answer ms"] if thinks else []
    return page.table([*head, *(page.GAPS if _closely(summary) else [])], rows)


def _closely(summary: Summary) -> bool:
    """Whether the stream was read chunk by chunk."""
    return any(arm["gaps"] for arm in summary["arms"])


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


def _beside(summary: Summary) -> list[str]:
    """The same prompts with the other sampling."""
    rows = [
        [
            arm["arm"],
            page.number(arm["tokens_per_second"]),
            page.ratio(arm["speed_up"]) if arm["speed_up"] else "1 (baseline)",
            page.interval(arm["speed_up"]),
            page.each_round(arm["speed_up"]),
            page.kept(arm["kept"]),
            arm["speed_up"]["verdict"] if arm["speed_up"] else "",
        ]
        for arm in summary["beside"]
        if arm["tokens_per_second"] is not None
    ]
    if not rows:
        return []
    drawn = DRAWN[OTHER[summary["headline"]]]
    head = ["arm", "tokens/s", "speed-up", page.LEVEL, "each round", "kept", "verdict"]
    share = summary["beside_repetition"]
    said = f"Of what these replies say they had said {share:.1%} before." if share else ""
    return [f"## {drawn[0].upper()}{drawn[1:]}", page.table(head, rows), said]


def _equal_text(summary: Summary) -> list[str]:
    lines = []
    for row in summary["equal_text"]:
        if row["of"] and row["arm"] == BASELINE:
            lines.append(
                f"- Equal text, control: without drafter {row['equal']} of {row['of']} prompts "
                "have the same greedy reply in every round."
            )
        elif row["of"]:
            lines.append(
                f"- Equal text, {row['arm']}: {row['equal']} of {row['of']} prompts have the same "
                "greedy reply as without drafter."
            )
    return lines
