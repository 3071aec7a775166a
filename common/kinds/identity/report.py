"""The text of an identity report."""

from pathlib import Path

from common.kinds.identity.schema import Summary
from common.measure import page
from common.measure.journal import Manifest


def render(summary: Summary, manifest: Manifest, _folder: Path) -> str:
    """REPORT.md as text."""
    parts = [
        f"# Identity: {summary['rig']}, {manifest['started'][:10]}",
        *page.warnings(summary, manifest),
        f"**{answer(summary, manifest)}**",
        "## Result",
        _result(summary),
        "Greedy, prompt cache off, 256 tokens at most. The control is no drafter asked a second "
        "time, on a server of its own. A difference is no fault in itself: several tokens checked "
        "at once go through other kernels than one, and where two tokens nearly tie, rounding "
        f"decides. A *near-tie* is a gap under {summary['near_tie_nats']:g} nats.",
        "## Where they part",
        _differences(summary),
        "## The prompts",
        page.table(
            ["prompt", "tokens", "reply tokens"],
            [[c["cell"], str(c["prompt_tokens"]), str(c["tokens"])] for c in summary["cells"]],
        ),
        *_known_answer(summary),
        "## Can this be trusted",
        f"- Failed attempts: {summary['failed_attempts']}.\n{page.pauses(summary['pauses'])}\n"
        f"{page.time_line(summary['time'])}",
        "## What was run",
        page.what_was_run(manifest, summary["launch"]),
        "## Do it again",
        page.reproduce(manifest),
        "## Not measured",
        "Sampling at a temperature, several requests at once, whether a different answer is a "
        "worse one (`make accuracy` asks that). Speeds: these requests also ask for "
        "log-probabilities, which costs time.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def answer(summary: Summary, manifest: Manifest) -> str:
    """The answer in one sentence."""
    where = page.hardware(manifest)
    own = [arm for arm in summary["arms"] if not arm["control"]]
    equal, of = sum(arm["equal"] for arm in own), sum(arm["of"] for arm in own)
    if not of:
        return f"On {where}, no reply with a drafter has been compared yet."
    control = next(arm for arm in summary["arms"] if arm["control"])
    text = f"On {where}, {equal} of {of} greedy replies with a drafter are the same as without"
    if equal < of:
        ties = sum(arm["near_ties"] for arm in own)
        text += f"; {ties} of the {of - equal} others part at a near-tie"
    if not control["of"]:
        return text + " (no control yet)."
    return text + f" (control, no drafter twice: {control['equal']} of {control['of']})."


def _result(summary: Summary) -> str:
    rows = [
        [
            f"{arm['arm']}, again (control)" if arm["control"] else arm["arm"],
            f"{arm['equal']} of {arm['of']}",
            str(arm["near_ties"]),
            page.kept(arm["kept"]),
        ]
        for arm in summary["arms"]
    ]
    return page.table(["arm", "equal to none", "part at a near-tie", "kept"], rows)


def _differences(summary: Summary) -> str:
    if not summary["differences"]:
        return "Nowhere."
    rows = []
    for one in summary["differences"]:
        gap = "unknown" if one["gap"] is None else f"{one['gap']:.3f}"
        rows.append(
            [
                f"{one['arm']}, again" if one["control"] else one["arm"],
                one["cell"],
                str(one["token"] + 1),
                _quoted(one["after"]),
                _quoted(one["text"]),
                _quoted(one["other_text"]),
                f"over {gap}" if one["gap_is_lower_bound"] else gap,
                {True: "yes", False: "no", None: "unknown"}[one["near_tie"]],
            ]
        )
    head = ["arm", "prompt", "token", "after", "none says", "it says", "gap, nats", "near-tie"]
    text = (
        "*Token* counts from 1. *Gap*: by how much the model without drafter held its own token "
        "more likely than the other, as log-probabilities."
    )
    return f"{page.table(head, rows)}\n\n{text}"


def _quoted(text: str | None) -> str:
    """A text for a table cell, blanks and line ends visible; (end) where the reply ended."""
    if text is None:
        return "(end)"
    return "`" + repr(text)[1:-1].replace("`", "'") + "`"


def _known_answer(summary: Summary) -> list[str]:
    known = summary["known_answer"]
    if known is None:
        return []
    return [
        "## Known answer",
        f"{known['equal']} of {known['of']} replies are, letter by letter, what the pair's chain "
        "says without a model. All must be.",
    ]
