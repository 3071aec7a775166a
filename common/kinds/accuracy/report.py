"""The text of an accuracy report."""

from pathlib import Path

from common.kinds.accuracy import scores, tests
from common.kinds.accuracy.pairing import (
    BETTER,
    LEAST_RIGHT,
    NONE_SHOWN,
    NOT_A_TEST,
    WORDS,
    WORSE,
)
from common.kinds.accuracy.schema import Score, Summary
from common.measure import figures, page
from common.measure.journal import Manifest
from common.measure.summary import Difference

Scored = list[tuple[str, Score, int]]
"""the title of a score, its figures, and how many questions it is over"""
SENTENCES = {
    WORSE: "{second} answers worse than {first}: {told} points",
    BETTER: "{second} answers better than {first}: {told} points",
    NONE_SHOWN: "no difference between {second} and {first} can be shown with these questions: "
    "{told} points",
    NOT_A_TEST: "not a test, as the first arm ({first}) has too few finished replies right for a "
    "loss to show: {told}",
}


def render(summary: Summary, manifest: Manifest, folder: Path) -> str:
    """REPORT.md as text; draws the figure and writes scores.jsonl and changed.jsonl."""
    scores.write(folder)
    rows = _scored(summary)
    if rows:
        figures.differences(folder / "figures" / "differences.svg", [row[:2] for row in rows])
    parts = [
        f"# Accuracy: {summary['rig']}, {manifest['started'][:10]}",
        *_warnings(summary, manifest),
        f"**{answer(summary, manifest)}**",
        "## Result",
        _result(summary),
        _how_to_read(summary),
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
        "*Time* is the whole of the requests, prompts included. *Speed-up* compares decode speeds "
        "question by question and leaves out replies of under 8 tokens. Each question is asked "
        f"once of each arm, so the {page.LEVEL} interval is over the parts, each with its own "
        "server starts; *by part* has the ratio of each. Where replies differ in length, time and "
        "speed-up differ too.",
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
    primary = _scored(summary, primary=True)
    told = [
        says.format(first=first, second=second, told=_told(some))
        for verdict, says in SENTENCES.items()
        if (some := [row for row in primary if row[1]["verdict"] == verdict])
    ]
    if not any(_shown(score) for _, score, _ in primary):
        told += [
            f"{row[1]['verdict']} by a score that does not decide: {_told([row])} points"
            for row in rows
            if _shown(row[1])
        ]
    return f"On {where}, {'; '.join(told)}."


def _shown(score: Score) -> bool:
    return score["verdict"] in (WORSE, BETTER)


def _told(rows: Scored) -> str:
    """The differences with their intervals; of what is no test, what there was to lose."""
    return "; ".join(
        f"{title} ({score['finished_right'][0]} of {questions})"
        if score["verdict"] == NOT_A_TEST
        else f"{title} {_points(score['difference'])} ({_interval(score)})"
        for title, score, questions in rows
    )


def _how_to_read(summary: Summary) -> str:
    first, second = summary["arms"]
    return (
        "Right answers of the same questions, greedy, in both arms, each share with its "
        f"{page.LEVEL} interval (Wilson). *Difference* is {second} minus {first}, in points of a "
        f"hundred, with its {page.LEVEL} interval (Tango). *p* is the exact McNemar test. *Could "
        "show*: the smallest true difference that this many questions would show four times in "
        "five. *Verdict*: worse or better where interval and p both say so. Not a test: "
        f"the first arm has fewer than {LEAST_RIGHT} right among its *answered* replies, and "
        "losing every one of them would not show. The score in bold decides for its test, whatever "
        "the others come to. " + _legends(summary) + "docs/METHOD.md explains each."
    )


def _scored(summary: Summary, primary: bool = False) -> Scored:
    """Every score, or the one of each test that decides."""
    return [
        (_score_title(test["test"], score["score"]), score, test["questions"])
        for test in summary["tests"]
        for score in test["scores"]
        if not primary or score["score"] == test["primary"]
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
            title = _score_title(test["test"], score["score"])
            rows.append(
                [
                    f"**{title}**" if score["score"] == test["primary"] else title,
                    *(
                        f"{right} of {of} ({right / of:.1%}; {low:.1%} to {high:.1%})"
                        for right, (low, high) in zip(
                            score["right"], score["intervals"], strict=True
                        )
                    ),
                    _points(score["difference"]),
                    _interval(score),
                    f"{score['p_value']:.3g}",
                    f"{len(score['gained'])} / {len(score['lost'])}",
                    "none" if score["detectable"] is None else f"{100 * score['detectable']:.1f}",
                    WORDS[score["verdict"]],
                ]
            )
    head = ["score", first, second, "difference", page.LEVEL, "p", "gained / lost", "could show"]
    return page.table([*head, "verdict"], rows)


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
                    page.each_round(up),
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
        f"{page.LEVEL} over parts",
        "by part",
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
        f"was throttled: {page.count(flags['throttled'])}. "
        f"Client and server clock more than 2% apart: "
        f"{flags['clocks_disagree']}."
    )
    for test in summary["tests"]:
        if test["questions"] < test["asked"]:
            lines.append(
                f"- {_title(test['test'])}: {test['questions']} of {test['asked']} questions "
                "were asked of both arms."
            )
    lines.append(page.pauses(summary["pauses"]))
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
