"""The text of a sweep's or longmixed's report."""

from pathlib import Path

from common.kinds.sweep.plan import LAYOUTS
from common.kinds.sweep.schema import Summary, Turn
from common.kinds.sweep.strata import UNITS
from common.kinds.sweep.tables import by_shape, loads, waits, waits_text
from common.measure import energy, figures, page
from common.measure.journal import Manifest, Plan
from common.measure.summary import SpeedUp

TITLES = {"sweep": "Many requests at once", "longmixed": "Many long requests at once"}
HOW = {False: "by batches", True: "in closed loops"}


def render(summary: Summary, manifest: Manifest, folder: Path) -> str:
    """REPORT.md as text; draws the figures into `folder`."""
    pieces = [
        f"# {TITLES[summary['what']]}: {summary['rig']}, {manifest['started'][:10]}",
        *page.warnings(summary, manifest),
        f"**{answer(summary, manifest)}**",
        "## Result",
        _ratios(summary),
        _told(summary),
        *_figures(summary, folder),
        "## Where the drafter turns into a loss",
        "\n".join(
            f"- {turn['kind']}, {turn['layout']}, {HOW[turn['loop']]}: {in_words(turn)}."
            for turn in summary["turns"]
        ),
        "## What sharing the cache costs",
        _sharing(summary),
        "Speed of batches with the shared cache over that with the cache per slot.",
        *by_shape(summary),
        "## Speed",
        loads(summary),
        "*In + out* counts the tokens of prompts as well. *Spread* is the fastest round over the "
        f"slowest, minus 1.{_of_loops(summary)}",
        "## What a user waits",
        waits(summary),
        waits_text(summary),
        *energy.told(summary["energy"]),
        *page.known_answer(summary),
        *page.cells_wrong(summary),
        *page.faults(summary),
        "## Can this be trusted",
        "\n".join([*page.trust(summary), page.time_line(summary["time"])]),
        "## What was run",
        _document(summary, manifest["plan"]),
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
    own = [turn for turn in summary["turns"] if turn["kind"] == kind]
    told = []
    for layout in LAYOUTS:
        said = {HOW[turn["loop"]]: in_words(turn) for turn in own if turn["layout"] == layout}
        if len(set(said.values())) == 1:
            said = {" and ".join(said): next(iter(said.values()))}
        told += [f"{layout} cache, {how}: {words}" for how, words in said.items()]
    return f"On {where}, with {kind} prompts, {'; '.join(told)}."


def in_words(turn: Turn) -> str:
    """How far the drafter gains."""
    if turn["most"] is None:
        return "not measured"
    most, pays_to = f"{turn['most']:.0f} at once", turn["pays_to"]
    if turn["everywhere"] == "unknown":
        return f"too little was measured to say; that takes {UNITS} rounds"
    if turn["everywhere"] == "loses":
        return f"the drafter loses at every number of requests to {most}"
    if pays_to is None:
        return f"no clear gain at any number of requests to {most}"
    if pays_to == turn["most"]:
        short = "" if turn["everywhere"] else ", though not at every number before it"
        return f"the drafter still gains at {most}, the most measured{short}"
    if turn["at"] is not None and turn["at"] > pays_to:
        low = "1" if turn["low"] is None else f"{turn['low']:.1f}"
        high = f"beyond {most}" if turn["high"] is None else f"{turn['high']:.1f}"
        return f"the gain is gone at about {turn['at']:.1f} at once ({page.LEVEL}: {low} to {high})"
    level = ", where it is not sure to be gone either" if turn["why"] == "unsure" else ""
    return f"a clear gain to {pays_to:.0f} at once, none that is sure at {most}{level}"


def _told(summary: Summary) -> str:
    """What the table of ratios is."""
    text = (
        "Output tokens per second with the drafter over without, same prompts, same KV layout: "
        "*per-slot*, each request has its own cache; *shared*, one for all (-kvu). *Batches* send "
        "so many requests at once and are timed to the end of the last reply, so one slow reply "
        "counts for all. "
    )
    if summary["loops"]:
        text += (
            "In *closed loops* so many users each send the next request when the last has ended; "
            "they are timed while every user has one under way. "
        )
    return text + _interval_of(summary)


def _interval_of(summary: Summary) -> str:
    rounds = {
        len(up["rounds"]) for row in summary["ratios"] for up in row["drafter"].values() if up
    }
    if max(rounds, default=0) < UNITS:
        return f"There is no interval: it takes {UNITS} rounds, each with prompts of its own."
    return (
        f"The interval is {page.LEVEL} over rounds, each with prompts and server starts of its "
        "own; within a round every shape counts the same. *Each round* has the ratio of each."
    )


def _ratios(summary: Summary) -> str:
    looped = any(turn["loop"] for turn in summary["turns"])
    rows = []
    for row in summary["ratios"]:
        for layout in LAYOUTS:
            cells = [row["kind"], str(row["at_once"]), layout]
            rows.append(
                [
                    *cells,
                    *_speed_up(row["drafter"][layout]),
                    *(_speed_up(row["loop"][layout]) if looped else []),
                ]
            )
    head = ["prompts", "at once", "cache", f"batches ({page.LEVEL})", "each round", "verdict"]
    more = [f"closed loops ({page.LEVEL})", "each round", "verdict"] if looped else []
    return page.table([*head, *more], rows)


def _speed_up(up: SpeedUp | None) -> list[str]:
    if up is None:
        return ["", "", ""]
    return [f"{page.ratio(up)} ({page.interval(up)})", page.each_round(up), up["verdict"]]


def _of_loops(summary: Summary) -> str:
    if not summary["loops"]:
        return ""
    return " A *loop* is a closed one, of requests of all shapes in turn."


def _sharing(summary: Summary) -> str:
    rows = []
    for row in summary["ratios"]:
        none, drafter = row["sharing"]["none"], row["sharing"]["drafter"]
        rows.append([row["kind"], str(row["at_once"]), *_speed_up(none)[:2]])
        rows[-1] += _speed_up(drafter)[:2]
    head = ["prompts", "at once", f"no drafter ({page.LEVEL})", "each round"]
    return page.table([*head, f"drafter ({page.LEVEL})", "each round"], rows)


def _figures(summary: Summary, folder: Path) -> list[str]:
    """One for batches and one for closed loops, of each kind of prompts."""
    found = []
    for kind in dict.fromkeys(row["kind"] for row in summary["ratios"]):
        own = [row for row in summary["ratios"] if row["kind"] == kind]
        for loop, suffix in ((False, ""), (True, "_loops")):
            series = {
                f"{kind}, {layout}, {HOW[loop]}": [
                    (row["at_once"], up)
                    for row in own
                    if (up := (row["loop"] if loop else row["drafter"])[layout])
                ]
                for layout in LAYOUTS
            }
            if any(series.values()):
                name = f"at_once_{kind}{suffix}.svg"
                figures.lines(folder / "figures" / name, series, "requests at once", doubling=True)
                said = f"Speed-up of the drafter {HOW[loop]}, {kind} prompts"
                found.append(f"![{said}](figures/{name})")
    return found


def _document(summary: Summary, plan: Plan) -> str:
    about = summary["document"]
    requests = [one["sha256"] for cell in plan["cells"].values() for one in cell["requests"]]
    twice = len(set(requests)) < len(requests)
    asked = (
        "**Some prompts are asked of a server twice**, which a drafter that remembers may use."
        if twice
        else "No prompt is asked twice of a server."
    )
    if not about:
        return (
            "The prompts are made-up English from fixed seeds, cut to the exact number of tokens. "
            f"{asked}"
        )
    return (
        f"The documents are cut from {about['document']}, SHA-256 `{about['document_sha256']}`. "
        f"{asked}"
    )
