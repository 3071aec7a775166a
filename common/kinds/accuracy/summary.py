"""Every figure of an accuracy report, from the run directory alone."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from common.kinds.accuracy import pairing, scores, tests
from common.kinds.accuracy.outcomes import Outcome, StoredReply
from common.kinds.accuracy.plan import CONTROL
from common.kinds.accuracy.schema import (
    Counts,
    Flags,
    KnownAnswer,
    KnownScore,
    Score,
    Summary,
    Work,
)
from common.kinds.accuracy.schema import Test as Tested
from common.kinds.accuracy.scores import Answer
from common.kinds.accuracy.test import Test
from common.known.chain import Chain, chain_of
from common.measure import rows as measure_rows
from common.measure import stats
from common.measure.journal import Cell, Manifest, Trial
from common.measure.log import Log
from common.measure.rows import given, significant, throttled
from common.measure.summary import Drift, EqualReplies

LEAST_TOKENS = 8  # a shorter reply says nothing about speed


def summarise(folder: Path) -> Summary:
    """The summary; a test that no question of both arms was asked of is left out."""
    log = Log(folder)
    manifest, arms = log.manifest, log.arms
    answers = scores.answers(folder)
    digests = manifest["plan"]["inputs"]
    asked = [test for test in tests.TESTS if test.digest_key in digests]
    figures = [
        _test(test, arms, [a for a in answers if a.test == test.name], log) for test in asked
    ]
    return {
        **log.head(),
        "limit": _setting(manifest, "ACCURACY_LIMIT"),
        "parallel": given(_setting(manifest, "ACCURACY_PARALLEL")),
        "arms": arms,
        "published": {test.name: digests[test.digest_key] == test.published for test in asked},
        "tests": [one for one in figures if one],
        "drift": _drift(arms[0], answers),
        "flags": _flags(answers, log.lines),
        "known_answer": _known_answer(manifest, scores.read_questions(folder), answers, arms),
        "time": log.time(),
    }


def _setting(manifest: Manifest, key: str) -> int | None:
    value = manifest["settings"][key]
    return int(value) if value else None


def _test(
    test: Test[Any], arms: Sequence[str], answers: Sequence[Answer], log: Log
) -> Tested | None:
    """The figures of one test, from its own answers; None if both arms share no question."""
    both = scores.pairs(answers, arms)
    if not both:
        return None
    cells = {name: cell for name, cell in log.cells.items() if cell["test"] == test.name}
    counted = [answer for answer in answers if answer.round != CONTROL]
    trials = [trial for trial in log.of_kind("greedy") if trial["cell"] in cells]
    return {
        "test": test.name,
        "primary": test.primary,
        "questions": len(both),
        "asked": sum(len(cell["questions"]) for cell in cells.values()),
        "scores": [_score(score, both) for score in test.scores],
        "equal_replies": _equal(
            {name: pair[0].text for name, pair in both.items()},
            {name: pair[1].text for name, pair in both.items()},
        ),
        "control": _control(arms[0], answers),
        "outcomes": [
            {"arm": arm, "counts": _count(a.verdict.outcome.value for a in counted if a.arm == arm)}
            for arm in arms
        ],
        "work": [_work(arm, arms[0], trials, both) for arm in arms],
    }


def _count(names: Iterable[str]) -> Counts:
    return cast(Counts, dict(sorted(Counter(names).items())))


def _score(score: str, both: Mapping[str, scores.Pair]) -> Score:
    arms = list(zip(*both.values(), strict=True))
    first, second = (
        {name: pair[arm].verdict.right[score] for name, pair in both.items()} for arm in (0, 1)
    )
    compared = pairing.compare(first, second)
    right = [compared.baseline_right, compared.arm_right]
    finished = [sum(_finished_right(answer, score) for answer in own) for own in arms]
    return {
        "score": score,
        "verdict": pairing.verdict(compared, finished[0]),
        "right": right,
        "finished_right": finished,
        "intervals": [
            [significant(end) for end in pairing.share_interval(count, len(both))]
            for count in right
        ],
        "difference": significant(compared.difference),
        "low": significant(compared.low),
        "high": significant(compared.high),
        "p_value": significant(compared.p_value),
        "detectable": significant(compared.detectable),
        "gained": list(compared.gained),
        "lost": list(compared.lost),
    }


def _finished_right(answer: Answer, score: str) -> bool:
    return answer.verdict.right[score] and answer.verdict.outcome is Outcome.ANSWERED


def _equal(first: Mapping[str, str | None], second: Mapping[str, str | None]) -> EqualReplies:
    """k of n equal among the questions that both replied to."""
    replied = [
        {name: text for name, text in some.items() if text is not None} for some in (first, second)
    ]
    equal, of = pairing.equal_replies(*replied)
    return {"equal": equal, "of": of}


def _control(arm: str, answers: Sequence[Answer]) -> EqualReplies | None:
    """The first arm against itself; None if it was not asked again."""
    own = [answer for answer in answers if answer.arm == arm]
    first = {a.question: a.text for a in own if a.round != CONTROL}
    again = {a.question: a.text for a in own if a.round == CONTROL}
    return _equal(first, again) if again else None


def _work(
    arm: str, baseline: str, trials: Sequence[Trial], both: Mapping[str, scores.Pair]
) -> Work:
    """Tokens and time of one arm over the cells that both arms finished, and its speed-up."""
    finished = {t["cell"] for t in trials if t["arm"] == arm}
    shared = finished & {t["cell"] for t in trials if t["arm"] == baseline}
    own = [t for t in trials if t["arm"] == arm and t["cell"] in shared]
    other = [t for t in trials if t["arm"] == baseline and t["cell"] in shared]
    tokens = sum(given(sample["predicted_n"]) for t in own for sample in t["samples"])
    seconds, theirs = (sum(t["end"] - t["start"] for t in some) for some in (own, other))
    speeds = _speeds([a for some in both.values() for a in some if a.arm == arm])
    base = _speeds([a for some in both.values() for a in some if a.arm == baseline])
    up = measure_rows.speed_up(base, speeds) if arm != baseline else None
    return {
        "arm": arm,
        "tokens": tokens,
        "seconds": significant(seconds),
        "tokens_per_second": significant(tokens / seconds) if seconds else None,
        "kept": measure_rows.kept(own),
        "time_ratio": significant(seconds / theirs) if arm != baseline and theirs else None,
        "speed_up": {**up, "questions": len(base.keys() & speeds.keys())} if up else None,
    }


def _speeds(answers: Sequence[Answer]) -> dict[stats.Key, float]:
    """Decode speed by question and part, in tokens per second, of replies that are long enough."""
    return {
        (answer.question, answer.round): given(answer.sample["predicted_per_second"])
        for answer in answers
        if answer.sample and given(answer.sample["predicted_n"]) >= LEAST_TOKENS
    }


def _drift(arm: str, answers: Sequence[Answer]) -> Drift:
    own = [answer for answer in answers if answer.arm == arm]
    first = _speeds([answer for answer in own if answer.round != CONTROL])
    again = _speeds([answer for answer in own if answer.round == CONTROL])
    change = stats.drift(
        {key[0]: v for key, v in first.items()}, {key[0]: v for key, v in again.items()}
    )
    return {"arm": arm, "change": significant(change), "range": None}


def _flags(answers: Sequence[Answer], lines: Sequence[Trial]) -> Flags:
    replies = [answer.sample for answer in answers if answer.sample]
    long = [one for one in replies if given(one["predicted_n"]) >= LEAST_TOKENS]
    return {
        "replies": len(replies),
        "failed": sum(answer.sample is None for answer in answers),
        "throttled": throttled(lines),
        "clocks_disagree": sum(sample["clocks_disagree"] for sample in long),
    }


def _known_answer(
    manifest: Manifest,
    questions: Mapping[str, Any],
    answers: Sequence[Answer],
    arms: Sequence[str],
) -> KnownAnswer | None:
    """For a known-answer pair: replies and scores worked out without a model, beside the measured.

    None for other models.
    """
    chain = chain_of(manifest["settings"]["MODEL"])
    if chain is None:
        return None
    texts = _known_texts(chain, manifest["plan"]["cells"])
    replied = [(answer.question, answer.sample) for answer in answers if answer.sample]
    equal = sum(sample["content"] == texts[question] for question, sample in replied)
    rows: list[KnownScore] = []
    for test in tests.TESTS:
        for arm in arms:
            own = [a for a in answers if (a.test, a.arm) == (test.name, arm) and a.round != CONTROL]
            known = [
                test.verdict(questions[a.question], StoredReply(texts[a.question])) for a in own
            ]
            for score in test.scores if own else ():
                expected = sum(verdict.right[score] for verdict in known)
                measured = sum(answer.verdict.right[score] for answer in own)
                rows.append(
                    {
                        "test": test.name,
                        "score": score,
                        "arm": arm,
                        "expected": expected,
                        "measured": measured,
                        "equal": expected == measured,
                    }
                )
    return {"replies": {"equal": equal, "of": len(replied)}, "scores": rows}


def _known_texts(chain: Chain, cells: Mapping[str, Cell]) -> dict[str, str]:
    """Question -> what the chain replies.

    llama-server's templates count a text's length in bytes, and the reply depends on it.
    """
    return {
        question: chain.text(chain.reply(asked["bytes"], asked["max_tokens"]))
        for cell in cells.values()
        for question, asked in zip(cell["questions"], cell["requests"], strict=True)
    }
