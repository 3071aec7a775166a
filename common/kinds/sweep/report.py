"""The text of a sweep's or longmixed's report."""

from pathlib import Path

from common.kinds.sweep.plan import LAYOUTS
from common.kinds.sweep.schema import Percentiles, Summary, Turn
from common.measure import energy, figures, page
from common.measure.journal import Manifest
from common.measure.summary import SpeedUp

TITLES = {"sweep": "Many requests at once", "longmixed": "Many long requests at once"}


def render(summary: Summary, manifest: Manifest, folder: Path) -> str:
    """REPORT.md as text; draws the figures into `folder`."""
    pieces = [
        f"# {TITLES[summary['what']]}: {summary['rig']}, {manifest['started'][:10]}",
        *page.warnings(summary, manifest),
        f"**{answer(summary, manifest)}**",
        "## Result",
        _ratios(summary),
        "Output tokens per second of the whole batch, with the drafter over without, same prompts, "
        "same KV layout. *per-slot*: each request has its own cache; *shared*: one for all (-kvu). "
        f"*shared/per-slot* is what sharing costs. Intervals are {page.LEVEL} over batches.",
        *_figures(summary, folder),
        "## Where the drafter turns into a loss",
        "\n".join(
            f"- {turn['kind']}, {turn['layout']}: {in_words(turn)}." for turn in summary["turns"]
        ),
        "## By shape",
        _by_shape(summary),
        "*Spread* is the worst ratio, minus 1, between repeats of the same batch. TTFT and TPOT "
        "are per request, in milliseconds, at the 50th, 90th and 99th percentile.",
        *energy.told(summary["energy"]),
        *page.known_answer(summary),
        *page.cells_wrong(summary),
        *page.faults(summary),
        "## Can this be trusted",
        "\n".join([*page.trust(summary), page.time_line(summary["time"])]),
        "## What was run",
        _document(summary),
        page.what_was_run(manifest, summary["launch"]),
        "## Do it again",
        page.reproduce(manifest),
        "## Not measured",
        "Requests that arrive at random, other shapes, answer quality under load. What these "
        "numbers would be on another card." + energy.not_measured(summary["energy"]),
    ]
    return "\n\n".join(piece for piece in pieces if piece) + "\n"


def answer(summary: Summary, manifest: Manifest) -> str:
    """The answer in one sentence: the first kind of prompts, per-slot and shared."""
    where = page.hardware(manifest)
    kind = summary["turns"][0]["kind"]
    told = "; ".join(
        f"{turn['layout']} cache: {in_words(turn)}"
        for turn in summary["turns"]
        if turn["kind"] == kind
    )
    return f"On {where}, with {kind} prompts, {told}."


def in_words(turn: Turn) -> str:
    """Where the drafter turns into a loss."""
    if turn["most"] is None:
        return "not measured"
    most = f"{turn['most']:.0f} at once"
    if turn["why"] == "never":
        return f"the drafter gains at no number of requests to {most}"
    if turn["pays_to"] is None:
        return f"no clear gain at any number of requests to {most}"
    if turn["why"] == "holds":
        if turn["pays_to"] == turn["most"]:
            return f"the drafter still gains at {most}, the most measured"
        return f"a clear gain to {turn['pays_to']:.0f} at once, none that is sure at {most}"
    low = "1" if turn["low"] is None else f"{turn['low']:.1f}"
    high = f"beyond {most}" if turn["high"] is None else f"{turn['high']:.1f}"
    return f"the gain is gone at about {turn['at']:.1f} at once ({page.LEVEL}: {low} to {high})"


def _ratios(summary: Summary) -> str:
    rows = []
    for row in summary["ratios"]:
        cells = [row["kind"], str(row["at_once"])]
        for layout in LAYOUTS:
            up = row["drafter"][layout]
            cells += [_with_interval(up), up["verdict"] if up else ""]
        sharing = row["sharing"]
        cells += [_with_interval(sharing["none"]), _with_interval(sharing["drafter"])]
        rows.append(cells)
    head = [
        "prompts",
        "at once",
        "drafter, per-slot",
        "verdict",
        "drafter, shared",
        "verdict",
        "shared/per-slot, none",
        "shared/per-slot, drafter",
    ]
    return page.table(head, rows)


def _with_interval(up: SpeedUp | None) -> str:
    return f"{page.ratio(up)} ({page.interval(up)})" if up else ""


def _by_shape(summary: Summary) -> str:
    rows = []
    for row in summary["rows"]:
        rows.append(
            [
                row["kind"],
                row["shape"],
                str(row["at_once"]),
                row["arm"],
                page.number(row["tokens_per_second"]),
                page.percent(row["repeats_spread"]),
                _percentiles(row["ttft_ms"], 0),
                _percentiles(row["tpot_ms"], 2),
                page.number(row["busy_slots"], 2),
                page.kept(row["kept"]) if row["trials"] else "",
                str(row["trials"]),
            ]
        )
    head = [
        "prompts",
        "in/out",
        "at once",
        "arm",
        "tokens/s",
        "spread",
        "TTFT",
        "TPOT",
        "busy slots",
        "kept",
        "batches",
    ]
    return page.table(head, rows)


def _percentiles(found: Percentiles, digits: int) -> str:
    return " / ".join(page.number(of, digits) for of in (found["p50"], found["p90"], found["p99"]))


def _figures(summary: Summary, folder: Path) -> list[str]:
    found = []
    for kind in dict.fromkeys(row["kind"] for row in summary["ratios"]):
        series = {
            f"{kind}, {layout}": [
                (row["at_once"], up)
                for row in summary["ratios"]
                if row["kind"] == kind and (up := row["drafter"][layout])
            ]
            for layout in LAYOUTS
        }
        if any(series.values()):
            name = f"at_once_{kind}.svg"
            figures.lines(folder / "figures" / name, series, "requests at once", doubling=True)
            found.append(f"![Speed-up of the drafter, {kind} prompts](figures/{name})")
    return found


def _document(summary: Summary) -> str:
    about = summary["document"]
    if not about:
        return (
            "The prompts are made-up English from fixed seeds, cut to the exact number of tokens."
        )
    return f"The documents are cut from {about['document']}, SHA-256 `{about['document_sha256']}`."
