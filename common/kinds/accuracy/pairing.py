"""Two arms asked the same questions: by how much their scores differ, and how sure that is."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom, binomtest, norm

from common.errors import RigError
from common.measure.stats import CONFIDENCE, Judgement

ALPHA = 1 - CONFIDENCE
POWER = 0.80
LEAST_RIGHT = math.ceil(math.log2(2 / ALPHA))
"""right answers a baseline must have for the exact McNemar test to show the loss of all of them"""
WORSE: Final = "worse"
BETTER: Final = "better"
NONE_SHOWN: Final = "none_shown"
NOT_A_TEST: Final = "not_a_test"
WORDS: dict[str, str] = {
    WORSE: "worse",
    BETTER: "better",
    NONE_SHOWN: "no difference shown",
    NOT_A_TEST: "not a test",
}
"""verdicts as texts say them"""


@dataclass(frozen=True)
class Pairing:
    """The paired comparison of an arm with a baseline. Shares and differences are in 0..1."""

    questions: int
    baseline_right: int
    arm_right: int
    gained: tuple[str, ...]
    """ids the arm has right and the baseline wrong, in question order"""
    lost: tuple[str, ...]
    """ids the baseline has right and the arm wrong"""
    difference: float
    """the arm's share of right answers minus the baseline's, with its 95% interval"""
    low: float
    high: float
    p_value: float
    """exact McNemar, two-sided"""
    detectable: float | None
    """smallest_detectable of this many questions"""


def compare(baseline: Mapping[str, bool], arm: Mapping[str, bool]) -> Pairing:
    """Compares which questions two arms answered right; keys are question ids.

    Raises RigError where the arms were not asked the same questions in the same order, or none.
    """
    if list(baseline) != list(arm):
        raise RigError(
            f"the arms were not asked the same questions in the same order ({len(baseline)} and "
            f"{len(arm)} questions); compare only arms of one finished run"
        )
    if not baseline:
        raise RigError("there is no question to compare the arms on; finish the run first")
    gained = tuple(key for key, right in arm.items() if right and not baseline[key])
    lost = tuple(key for key, right in arm.items() if not right and baseline[key])
    count = len(baseline)
    low, high = difference_interval(len(gained), len(lost), count)
    return Pairing(
        questions=count,
        baseline_right=sum(baseline.values()),
        arm_right=sum(arm.values()),
        gained=gained,
        lost=lost,
        difference=(len(gained) - len(lost)) / count,
        low=low,
        high=high,
        p_value=mcnemar_p(len(gained), len(lost)),
        detectable=smallest_detectable(count, (len(gained) + len(lost)) / count),
    )


def verdict(compared: Pairing, finished_right: int) -> Judgement:
    """What may be said of the arm: worse, better, none_shown or not_a_test.

    A difference counts where its interval and the exact McNemar test both show it. Where they do
    not, and the baseline has fewer than LEAST_RIGHT of its finished replies right
    (`finished_right`), nothing the arm did could have shown as harm: that is no test, and says
    nothing about the arm. Replies that were cut off do not count, since a number in the middle of a
    text is right by chance.
    """
    if compared.p_value <= ALPHA and compared.high < 0:
        return WORSE
    if compared.p_value <= ALPHA and compared.low > 0:
        return BETTER
    return NONE_SHOWN if finished_right >= LEAST_RIGHT else NOT_A_TEST


def share_interval(right: int, questions: int) -> tuple[float, float]:
    """The score interval of one share (Wilson 1927, JASA 22, 209-212)."""
    found = binomtest(right, questions).proportion_ci(CONFIDENCE, method="wilson")
    return float(found.low), float(found.high)


def equal_replies(baseline: Mapping[str, str], arm: Mapping[str, str]) -> tuple[int, int]:
    """k of n: how many of the questions that both arms replied to have the same text."""
    both = [key for key in baseline if key in arm]
    return sum(baseline[key] == arm[key] for key in both), len(both)


def mcnemar_p(gained: int, lost: int) -> float:
    """The exact two-sided McNemar p-value: a fair coin tossed for each question that changed.

    Source: McNemar (1947), Psychometrika 12, 153-157, with the binomial distribution in place of
    its chi-squared approximation. Nothing changed is p = 1.
    """
    changed = gained + lost
    return float(binomtest(gained, changed, 0.5).pvalue) if changed else 1.0


def difference_interval(
    gained: int, lost: int, questions: int, level: float = CONFIDENCE
) -> tuple[float, float]:
    """The score interval of the difference of two paired shares, (gained - lost) / questions.

    Method and source: Tango (1998), Statistics in Medicine 17, 891-908. A difference is inside
    while the score test does not reject it, its variance taken from the most likely table that has
    this difference. Chosen because it keeps its coverage with few changed questions: summed over
    all tables, for 50 to 1,319 questions of which 1 to 30 change on average, 93.1% at worst and 96%
    on average. With no changed question it still has a width, z^2 / (questions + z^2) to either
    side. It may disagree with the exact McNemar test at its edges, since only the latter is exact.
    """
    z = float(norm.ppf(0.5 + level / 2))

    def distance(difference: float) -> float:
        return _score(gained, lost, questions, difference)

    estimate = (gained - lost) / questions
    # The score falls from plus to minus infinity over [-1, 1] and is 0 at the estimate. An arm
    # that changed every question the same way has its estimate, and that limit, at the end.
    low, high = -1.0, 1.0
    if estimate > -1:
        low = brentq(lambda x: distance(x) - z, -1 + 1e-12, estimate, xtol=1e-10)
    if estimate < 1:
        high = brentq(lambda x: distance(x) + z, estimate, 1 - 1e-12, xtol=1e-10)
    return low, high


def _score(gained: int, lost: int, questions: int, difference: float) -> float:
    """Tango's score statistic: standard normal where `difference` is the true one."""
    surplus = gained - lost - questions * difference
    # The share of lost questions in the most likely table with this difference is the larger root
    # of a*x^2 + b*x + c = 0.
    a = 2 * questions
    b = (2 * questions - gained + lost) * difference - gained - lost
    c = -lost * difference * (1 - difference)
    lost_share = (math.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a)
    variance = questions * (2 * lost_share + difference * (1 - difference))
    if variance <= 0:
        return math.copysign(math.inf, surplus) if surplus else 0.0
    return surplus / math.sqrt(variance)


def smallest_detectable(questions: int, changed_share: float) -> float | None:
    """The smallest true difference that this many questions would show, in 0..1; None if none.

    To show means: the exact two-sided McNemar test has p <= ALPHA with probability POWER,
    where `changed_share` of the questions change (gained or lost; at least the difference itself
    has to change, so a smaller share is raised to it). The power is exact: the number of changed
    questions is binomial, and so is the number gained among them. Source: Duffy (1984), Biometrics
    40, 1005-1015, the exact unconditional power; Connor (1987), Biometrics 43, 207-211, is its
    normal approximation.
    """
    changed = np.arange(questions + 1)
    # The most gained (or lost) of m changed questions with which the test still rejects; -1: none.
    edge = binom.ppf(ALPHA / 2, changed, 0.5) - 1

    def shortfall(difference: float) -> float:
        share = max(changed_share, difference)
        gains = (1 + difference / share) / 2
        rejects = binom.cdf(edge, changed, gains) + binom.cdf(edge, changed, 1 - gains)
        return POWER - float(np.sum(binom.pmf(changed, questions, share) * rejects))

    if shortfall(1.0) > 0:
        return None
    return float(brentq(shortfall, 1e-9, 1.0, xtol=1e-7))
