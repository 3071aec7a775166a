"""The text of an accuracy report."""

from pathlib import Path

from common.kinds.accuracy import scores, tests
from common.kinds.accuracy.schema import Score, Summary
from common.measure import figures, page
from common.measure.journal import Manifest
from common.measure.summary import Difference

Scored = list[tuple[str, Score]]
"""the title of a score, and its figures"""


def render(summary: Summary, manifest: Manifest, folder: Path) -> str:
    """REPORT.md as text; draws the figure and writes scores.jsonl and changed.jsonl."""
    scores.write(folder)
    rows = _scored(summary)
    if rows:
        figures.differences(folder / "figures" / "differences.svg", rows)
    parts = [
        f"# Accuracy: {summary['rig']}, {manifest['started'][:10]}",
        *_warnings(summary, manifest),
        f"**{answer(summary, manifest)}**",
        "## Result",
        _result(summary),
        "Right answers of the same questions, greedy, in both arms. *Difference* is the second arm "
        f"minus the first, in points of a hundred, with its {page.LEVEL} interval (Tango). *p* is "
        "the exact "
        "McNemar test. *Could show*: the smallest true difference that this many questions would "
        "show four times in five. " + _legends(summary) + "docs/METHOD.md explains each.",
        f"![Difference of the scores, in points, with {page.LEVEL} intervals]"
        "(figures/differences.svg)"
        if rows
        else "",
        "## The replies",
        _equal(summary),
        _outcomes(summary),
        "Outcomes count replies; each has exactly one. Only *answered* is what was asked for; a "
        "truncated reply was cut at the token limit. A failed request counts as a wrong answer.",
        "## This work",
        _work(summary),
        "*Time* is the whole of the requests, prompts included; *speed-up* compares decode speeds "
        f"question by question, with its {page.LEVEL} interval, and leaves out replies of under "
        "8 tokens. "
        "Where replies differ in length, time and speed-up differ too.",
        *_known_answer(summary),
        "## Can this be trusted",
        _trust(summary),
        "## What was run",
        page.what_was_run(manifest, summary["launch"]),
        _sources(summary),
        "## Do it again",
        page.reproduce(manifest) + " `make rescore RUN=` and this folder reads every stored reply "
        "anew; no model is needed.",
        "## Not measured",
        "Other tests, other languages, long conversations, sampling at a temperature. What the "
        "model is worth: the prompts are this project's own, so the scores compare the two arms "
        "here, not this model with published tables.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def answer(summary: Summary, manifest: Manifest) -> str:
    """The answer in one sentence."""
    where, (first, second) = page.hardware(manifest), summary["arms"]
    rows = _scored(summary)
    if not rows:
        return f"On {where}, {first} and {second} have no question in common yet."
    worse = [row for row in rows if row[1]["high"] < 0]
    better = [row for row in rows if row[1]["low"] > 0]
    told = "; ".join(
        f"{title} {_points(s['difference'])} ({_interval(s)})"
        for title, s in worse or better or rows
    )
    if worse:
        return f"On {where}, {second} answers worse than {first}: {told} points."
    if better:
        return f"On {where}, {second} answers better than {first}: {told} points."
    return (
        f"On {where}, no difference between {second} and {first} can be shown with these "
        f"questions: {told} points."
    )


def _scored(summary: Summary) -> Scored:
    return [
        (_score_title(test["test"], score["score"]), score)
        for test in summary["tests"]
        for score in test["scores"]
    ]


def _title(test: str) -> str:
    return tests.of(test).title


def _score_title(test: str, score: str) -> str:
    return tests.of(test).scores[score]


def _legends(summary: Summary) -> str:
    """What the tests say of their scores, each with a space after it."""
    legends = [tests.of(name).legend for name in summary["published"]]
    return "".join(f"{legend} " for legend in legends if legend)


def _warnings(summary: Summary, manifest: Manifest) -> list[str]:
    lines = page.warnings(summary, manifest)
    if summary["limit"]:
        lines.append(
            f"> **Limited**: only the first {summary['limit']} questions of each test were asked."
        )
    for test, published in summary["published"].items():
        if not published:
            lines.append(f"> **Other questions**: not the published {_title(test)} file.")
    if summary["flags"]["failed"]:
        lines.append(
            f"> **Failed requests**: {summary['flags']['failed']}; they count as wrong answers."
        )
    return lines


def _result(summary: Summary) -> str:
    first, second = summary["arms"]
    rows = []
    for test in summary["tests"]:
        of = test["questions"]
        for score in test["scores"]:
            rows.append(
                [
                    _score_title(test["test"], score["score"]),
                    *(f"{right} of {of} ({right / of:.1%})" for right in score["right"]),
                    _points(score["difference"]),
                    _interval(score),
                    f"{score['p_value']:.3g}",
                    f"{len(score['gained'])} / {len(score['lost'])}",
                    "none" if score["detectable"] is None else f"{100 * score['detectable']:.1f}",
                ]
            )
    head = ["score", first, second, "difference", page.LEVEL, "p", "gained / lost", "could show"]
    return page.table(head, rows)


def _equal(summary: Summary) -> str:
    first, second = summary["arms"]
    lines = []
    for test in summary["tests"]:
        equal, control = test["equal_replies"], test["control"]
        text = (
            f"- {_title(test['test'])}: {equal['equal']} of {equal['of']} replies are the "
            f"same with {first} and {second}"
        )
        if control:
            text += f"; control, {first} asked twice: {control['equal']} of {control['of']}"
        lines.append(text + ".")
    lines.append(
        f"- Both replies of every question that changed are in `{scores.CHANGED_FILE}`, the "
        f"verdict on every reply in `{scores.SCORES_FILE}`."
    )
    return "\n".join(lines)


def _outcomes(summary: Summary) -> str:
    rows = []
    for test in summary["tests"]:
        counts = [some["counts"] for some in test["outcomes"]]
        for name in sorted({name for some in counts for name in some}):
            own = [str(some.get(name, 0)) for some in counts]
            rows.append([_title(test["test"]), name.replace("_", " "), *own])
    return page.table(["test", "outcome", *summary["arms"]], rows)


def _work(summary: Summary) -> str:
    rows = []
    for test in summary["tests"]:
        for work in test["work"]:
            up = work["speed_up"]
            rows.append(
                [
                    _title(test["test"]),
                    work["arm"],
                    str(work["tokens"]),
                    page.number(work["seconds"]),
                    page.number(work["tokens_per_second"]),
                    "" if work["time_ratio"] is None else f"{work['time_ratio']:.3f}",
                    page.ratio(up) if up else "",
                    page.interval(up),
                    up["verdict"] if up else "",
                    page.kept(work["kept"]),
                ]
            )
    head = [
        "test",
        "arm",
        "tokens",
        "time s",
        "tokens/s",
        "time, share of first",
        "speed-up",
        page.LEVEL,
        "verdict",
        "kept",
    ]
    return page.table(head, rows)


def _known_answer(summary: Summary) -> list[str]:
    known = summary["known_answer"]
    if known is None:
        return []
    rows = [
        [
            _score_title(row["test"], row["score"]),
            row["arm"],
            str(row["expected"]),
            str(row["measured"]),
            "yes" if row["equal"] else "NO",
        ]
        for row in known["scores"]
    ]
    replies = known["replies"]
    text = (
        f"{replies['equal']} of {replies['of']} replies are, letter by letter, what the pair's "
        "chain says without a model. Replies and scores must all be equal, not close."
    )
    head = ["score", "arm", "right, expected", "right, measured", "equal"]
    return ["## Known answer", page.table(head, rows), text]


def _trust(summary: Summary) -> str:
    flags = summary["flags"]
    lines = [page.drift(summary)]
    lines.append(
        f"- Replies: {flags['replies']}; failed requests: {flags['failed']}. Taken while the card "
        f"was throttled: {flags['throttled']}. Client and server clock more than 2% apart: "
        f"{flags['clocks_disagree']}."
    )
    for test in summary["tests"]:
        if test["questions"] < test["asked"]:
            lines.append(
                f"- {_title(test['test'])}: {test['questions']} of {test['asked']} questions "
                "were asked of both arms."
            )
    lines.append(page.time_line(summary["time"]))
    return "\n".join(lines)


def _sources(summary: Summary) -> str:
    sources = [tests.of(name).source for name in summary["published"]]
    return " ".join([*sources, f"Questions asked at once: {summary['parallel']}."])


def _points(share: float) -> str:
    """A difference of shares in points of a hundred; never -0.0."""
    return f"{100 * share:+.1f}" if round(100 * share, 1) else "0.0"


def _interval(score: Difference) -> str:
    return f"{_points(score['low'])} to {_points(score['high'])}"
