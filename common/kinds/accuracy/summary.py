"""Every figure of an accuracy report, from the run directory alone."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.kinds.accuracy import pairing, scores
from common.kinds.accuracy import plan as accuracy
from common.kinds.accuracy.outcomes import StoredReply
from common.kinds.accuracy.scores import Answer
from common.kinds.accuracy.tests import gsm8k
from common.known import chain as pair
from common.measure import log as summaries
from common.measure import rows as measure_rows
from common.measure import stats

LEAST_TOKENS = 8  # a shorter reply says nothing about speed


def summarise(folder: Path) -> dict[str, Any]:
    """The summary; a test that no question of both arms was asked of is left out."""
    log = summaries.Log(folder)
    manifest, arms = log.manifest, log.arms
    questions = scores.read_questions(folder)
    answers = scores.answers(folder)
    tests = [
        _test(test, arms, [a for a in answers if a.test == test], log) for test in scores.SCORES
    ]
    return {
        **log.head(),
        "limit": _setting(manifest, "ACCURACY_LIMIT"),
        "parallel": _setting(manifest, "ACCURACY_PARALLEL"),
        "arms": arms,
        "published": {
            "gsm8k": manifest["plan"]["inputs"]["gsm8k_sha256"] == gsm8k.SHA256,
            "bfcl": manifest["plan"]["inputs"]["bfcl_sha256"] == accuracy.PUBLISHED_BFCL,
        },
        "tests": [test for test in tests if test],
        "drift": _drift(arms[0], answers),
        "flags": _flags(answers, log.lines),
        "known_answer": _known_answer(manifest, questions, answers, arms),
        "time": log.time(),
    }


def _setting(manifest: Mapping[str, Any], key: str) -> int | None:
    value = manifest["settings"][key]
    return int(value) if value else None


def _test(
    test: str,
    arms: Sequence[str],
    answers: Sequence[Answer],
    log: summaries.Log,
) -> dict[str, Any] | None:
    both = scores.pairs(answers, arms)
    if not both:
        return None
    asked = [answer for answer in answers if answer.round != scores.CONTROL]
    trials = [t for t in log.of_kind("greedy") if log.cells[t["cell"]]["test"] == test]
    return {
        "test": test,
        "questions": len(both),
        "asked": sum(len(c["questions"]) for c in log.cells.values() if c["test"] == test),
        "scores": [_score(score, both) for score in scores.SCORES[test]],
        "equal_replies": _equal({name: pair[0].text for name, pair in both.items()},
                                {name: pair[1].text for name, pair in both.items()}),
        "control": _control(arms[0], answers),
        "outcomes": [
            {"arm": arm, "counts": _count(a.outcome for a in asked if a.arm == arm)} for arm in arms
        ],
        "work": [_work(arm, arms[0], trials, both) for arm in arms],
    }  # fmt: skip


def _count(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _score(score: str, both: Mapping[str, scores.Pair]) -> dict[str, Any]:
    found = pairing.compare(
        {name: first.right[score] for name, (first, _) in both.items()},
        {name: second.right[score] for name, (_, second) in both.items()},
    )
    return {
        "score": score,
        "right": [found.baseline_right, found.arm_right],
        "difference": measure_rows.significant(found.difference),
        "low": measure_rows.significant(found.low),
        "high": measure_rows.significant(found.high),
        "p_value": measure_rows.significant(found.p_value),
        "detectable": measure_rows.significant(found.detectable),
        "gained": list(found.gained),
        "lost": list(found.lost),
    }


def _equal(first: Mapping[str, str | None], second: Mapping[str, str | None]) -> dict[str, int]:
    """k of n equal among the questions that both replied to."""
    came = [{name: text for name, text in some.items() if text is not None}
            for some in (first, second)]  # fmt: skip
    equal, of = pairing.equal_replies(*came)
    return {"equal": equal, "of": of}


def _control(arm: str, answers: Sequence[Answer]) -> dict[str, int] | None:
    """The first arm against itself; None if it was not asked again."""
    own = [answer for answer in answers if answer.arm == arm]
    first = {a.question: a.text for a in own if a.round != scores.CONTROL}
    again = {a.question: a.text for a in own if a.round == scores.CONTROL}
    return _equal(first, again) if again else None


def _work(
    arm: str, baseline: str, trials: Sequence[dict[str, Any]], both: Mapping[str, scores.Pair]
) -> dict[str, Any]:
    """Tokens and time of one arm over the cells that both arms finished, and its speed-up."""
    finished = {t["cell"] for t in trials if t["arm"] == arm}
    shared = finished & {t["cell"] for t in trials if t["arm"] == baseline}
    own = [t for t in trials if t["arm"] == arm and t["cell"] in shared]
    other = [t for t in trials if t["arm"] == baseline and t["cell"] in shared]
    tokens = sum(sample["predicted_n"] for t in own for sample in t["samples"])
    seconds, theirs = (sum(t["end"] - t["start"] for t in some) for some in (own, other))
    speeds = _speeds([a for some in both.values() for a in some if a.arm == arm])
    base = _speeds([a for some in both.values() for a in some if a.arm == baseline])
    up = stats.speed_up(base, speeds) if arm != baseline and base.keys() & speeds.keys() else None
    return {
        "arm": arm,
        "tokens": tokens,
        "seconds": measure_rows.significant(seconds),
        "tokens_per_second": measure_rows.significant(tokens / seconds) if seconds else None,
        "kept": measure_rows.kept(own),
        "time_ratio": measure_rows.significant(seconds / theirs)
        if arm != baseline and theirs
        else None,
        "speed_up": {
            "ratio": measure_rows.significant(up.ratio),
            "low": measure_rows.significant(up.low),
            "high": measure_rows.significant(up.high),
            "verdict": up.verdict,
            "questions": len(base.keys() & speeds.keys()),
        }
        if up
        else None,
    }


def _speeds(answers: Sequence[Answer]) -> dict[stats.Key, float]:
    """Decode speed by question, in tokens per second, of replies that are long enough."""
    return {
        (answer.question, ""): answer.sample["predicted_per_second"]
        for answer in answers
        if answer.sample and answer.sample["predicted_n"] >= LEAST_TOKENS
    }


def _drift(arm: str, answers: Sequence[Answer]) -> dict[str, Any]:
    own = [answer for answer in answers if answer.arm == arm]
    first = _speeds([answer for answer in own if answer.round != scores.CONTROL])
    again = _speeds([answer for answer in own if answer.round == scores.CONTROL])
    change = stats.drift({key[0]: v for key, v in first.items()},
                         {key[0]: v for key, v in again.items()})  # fmt: skip
    return {"arm": arm, "change": measure_rows.significant(change)}


def _flags(answers: Sequence[Answer], lines: Sequence[dict[str, Any]]) -> dict[str, int]:
    long = [a.sample for a in answers if a.sample and a.sample["predicted_n"] >= LEAST_TOKENS]
    return {
        "replies": sum(answer.sample is not None for answer in answers),
        "failed": sum(answer.sample is None for answer in answers),
        "throttled": sum(bool(line["throttles"]) for line in lines),
        "clocks_disagree": sum(sample["clocks_disagree"] for sample in long),
    }


def _known_answer(
    manifest: Mapping[str, Any],
    questions: Mapping[str, Any],
    answers: Sequence[Answer],
    arms: Sequence[str],
) -> dict[str, Any] | None:
    """For a known-answer pair: replies and scores worked out without a model, beside the measured.

    None for other models.
    """
    chain = pair.chain_of(manifest["settings"]["MODEL"])
    if chain is None:
        return None
    # llama-server's templates count a text's length in bytes, and the pair's reply depends on it.
    texts: dict[str, str] = {}
    for cell in manifest["plan"]["cells"].values():
        for name, asked in zip(cell["questions"], cell["requests"], strict=True):
            texts[name] = chain.text(chain.reply(asked["bytes"], asked["max_tokens"]))
    came = [answer for answer in answers if answer.sample]
    equal = sum(
        answer.sample["content"] == texts[answer.question] for answer in came if answer.sample
    )
    rows = []
    for test, names in scores.SCORES.items():
        own = [
            answer for answer in answers if answer.test == test and answer.round != scores.CONTROL
        ]
        for arm in arms:
            mine = [answer for answer in own if answer.arm == arm]
            known = [
                scores.verdict(questions[a.question], StoredReply(texts[a.question])) for a in mine
            ]
            for score in names if mine else ():
                expected = sum(right[score] for _, _, right in known)
                measured = sum(answer.right[score] for answer in mine)
                rows.append({"test": test, "score": score, "arm": arm, "expected": expected,
                             "measured": measured, "equal": expected == measured})  # fmt: skip
    return {"replies": {"equal": equal, "of": len(came)}, "scores": rows}
