"""The text of a long-context report."""

from pathlib import Path

from common.kinds.longctx.schema import Gone, Summary
from common.measure import figures, page
from common.measure.journal import Manifest
from common.measure.rows import BASELINE


def render(summary: Summary, manifest: Manifest, folder: Path) -> str:
    """REPORT.md as text; draws the figure into `folder`."""
    pieces = [
        f"# Long context: {summary['rig']}, {manifest['started'][:10]}",
        *page.warnings(summary, manifest),
        f"**{answer(summary, manifest)}**",
        "## Result",
        _table(summary),
        "Speeds and speed-ups are those of writing, one request at a time; reading the prompt is "
        "not counted. Speed-ups are over no drafter at the same depth, the interval is "
        f"{page.LEVEL} over tasks and server starts; *each round* has the speed-up of every round. "
        "*Reused* is the part of the prompt that the server had read already; *reading* is the "
        "speed at which it read the rest.",
        *_figure(summary, folder),
        "## Where the gain is gone",
        "\n".join(f"- {gone['arm']}: {in_words(gone)}." for gone in summary["gone"]),
        "Straight lines between the measured depths; the interval is where the ends of the "
        "speed-ups' intervals cross 1.",
        *page.known_answer(summary),
        *page.cells_wrong(summary),
        *page.faults(summary),
        "## Can this be trusted",
        "\n".join([*page.trust(summary), page.time_line(summary["time"])]),
        "## What was run",
        f"The document is {summary['document']['document']}, SHA-256 "
        f"`{summary['document']['document_sha256']}`, cut to the exact number of tokens. A server "
        f"reads it once, shallow to deep; {_asked(manifest)}.",
        page.what_was_run(manifest, summary["launch"]),
        "## Do it again",
        page.reproduce(manifest),
        "## Not measured",
        "Several requests at once, answer quality at depth. What these numbers "
        "would be on another card.",
    ]
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


def _asked(manifest: Manifest) -> str:
    if all("words" in cell for cell in manifest["plan"]["cells"].values()):
        return "what is asked after it is in other words at every depth"
    return "**the same is asked after it at every depth**, which a drafter that remembers may use"


def answer(summary: Summary, manifest: Manifest) -> str:
    """The answer in one sentence."""
    where = page.hardware(manifest)
    known = [gone for gone in summary["gone"] if gone["deepest"] is not None]
    if not known:
        return f"On {where}, nothing has been measured with a drafter yet."
    told = "; ".join(f"{gone['arm']}: {in_words(gone)}" for gone in known)
    return f"On {where}, how deep the drafter's gain reaches: {told}."


def in_words(gone: Gone) -> str:
    """Where a gain is gone."""
    if gone["deepest"] is None:
        return "not measured"
    deepest, pays_to = f"{gone['deepest']:,.0f} tokens", gone["pays_to"]
    if gone["everywhere"] == "unknown":
        return "too little was measured to say; that takes 2 rounds"
    if gone["everywhere"] == "loses":
        return f"a loss at every depth to {deepest}"
    if pays_to is None:
        return f"no clear gain at any depth to {deepest}"
    if pays_to == gone["deepest"]:
        short = "" if gone["everywhere"] else ", though not at every depth before it"
        return f"still a gain at {deepest}, the deepest measured{short}"
    if gone["at"] is not None and gone["at"] > pays_to:
        low = "0" if gone["low"] is None else f"{gone['low']:,.0f}"
        high = f"beyond {deepest}" if gone["high"] is None else f"{gone['high']:,.0f}"
        return f"gone at about {gone['at']:,.0f} tokens ({page.LEVEL}: {low} to {high})"
    level = ", where it is not sure to be gone either" if gone["why"] == "unsure" else ""
    return f"a clear gain to {pays_to:,.0f} tokens, none that is sure at {deepest}{level}"


def _table(summary: Summary) -> str:
    rows = []
    for row in summary["rows"]:
        up = row["speed_up"]
        rows.append(
            [
                f"{row['depth']:,}",
                row["arm"],
                page.number(row["tokens_per_second"]),
                page.ratio(up) if up else ("1 (baseline)" if row["arm"] == BASELINE else ""),
                page.interval(up),
                page.each_round(up),
                up["verdict"] if up else "",
                page.kept(row["kept"]) if row["trials"] else "",
                "" if row["reused"] is None else f"{row['reused']:,}",
                page.number(row["reading_per_second"]),
                page.memory(row["memory_mib"]),
                str(row["trials"]),
            ]
        )
    head = [
        "depth",
        "arm",
        "tokens/s",
        "speed-up",
        page.LEVEL,
        "each round",
        "verdict",
        "kept",
        "reused",
        "reading, tokens/s",
        page.memory_title(summary["rows"]),
        "trials",
    ]
    return page.table(head, rows)


def _figure(summary: Summary, folder: Path) -> list[str]:
    series = {
        gone["arm"]: [
            (row["depth"], up)
            for row in summary["rows"]
            if row["arm"] == gone["arm"] and (up := row["speed_up"])
        ]
        for gone in summary["gone"]
    }
    if not any(series.values()):
        return []
    figures.lines(folder / "figures" / "depth.svg", series, "tokens in front of the request")
    return ["![Speed-up over no drafter by depth](figures/depth.svg)"]
