import math
from functools import lru_cache

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

from common.errors import RigError
from common.kinds.accuracy.pairing import (
    LEAST_RIGHT,
    Pairing,
    compare,
    difference_interval,
    equal_replies,
    mcnemar_p,
    share_interval,
    smallest_detectable,
    verdict,
)

# gained, lost, questions
TABLES = [
    (7, 1, 21),
    (40, 20, 160),
    (12, 2, 50),
    (3, 9, 400),
    (20, 31, 1319),
    (5, 0, 60),
    (0, 8, 9),
]


def table(gained: int, lost: int, questions: int) -> list[list[int]]:
    return [[questions - gained - lost, gained], [lost, 0]]


@pytest.mark.parametrize(("gained", "lost", "questions"), [*TABLES, (4, 4, 20), (1, 0, 5)])
def test_p_value_is_that_of_statsmodels(gained: int, lost: int, questions: int) -> None:
    expected = mcnemar(table(gained, lost, questions), exact=True).pvalue
    assert mcnemar_p(gained, lost) == pytest.approx(expected, rel=1e-12)


def test_p_value_where_nothing_changed() -> None:
    assert mcnemar_p(0, 0) == 1.0


@pytest.mark.parametrize(("gained", "lost", "questions"), TABLES)
def test_interval_touches_zero_at_the_p_value_of_statsmodels(
    gained: int, lost: int, questions: int
) -> None:
    # At a difference of 0 the score test is McNemar's test without continuity correction: the
    # interval of level 1 - p therefore ends at 0 exactly.
    p_value = mcnemar(table(gained, lost, questions), exact=False, correction=False).pvalue
    low, high = difference_interval(gained, lost, questions, level=1 - p_value)
    assert min(abs(low), abs(high)) == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize(("gained", "lost", "questions"), TABLES)
def test_interval_ends_where_the_score_test_rejects(gained: int, lost: int, questions: int) -> None:
    # The variance is found here by searching for the largest likelihood, not by the closed form.
    for end in difference_interval(gained, lost, questions):
        if abs(end) == 1:
            continue

        def unlikeliness(lost_share: float, end: float = end) -> float:
            gained_share = lost_share + end
            rest = 1 - lost_share - gained_share
            counts = (gained, lost, questions - gained - lost)
            shares = (gained_share, lost_share, rest)
            return -sum(
                n * math.log(max(p, 1e-300)) for n, p in zip(counts, shares, strict=True) if n
            )

        bounds = (max(0.0, -end), (1 - end) / 2)
        found = minimize_scalar(unlikeliness, bounds=bounds, options={"xatol": 1e-12})
        variance = (2 * found.x + end - end * end) / questions
        score = ((gained - lost) / questions - end) / math.sqrt(variance)
        assert abs(score) == pytest.approx(1.959964, abs=2e-3)


def test_interval_of_a_published_example() -> None:
    # Airway reactivity of 21 children before and after a transplant: 1 and 7 changed. Fagerland,
    # Lydersen and Laake (2014), Statistics in Medicine 33, 2850-2875, give -0.517 to -0.026.
    assert difference_interval(1, 7, 21) == pytest.approx((-0.517, -0.026), abs=5e-4)


def test_interval_with_no_changed_question_has_a_width() -> None:
    z_squared = 1.959964**2
    width = z_squared / (400 + z_squared)
    assert difference_interval(0, 0, 400) == pytest.approx((-width, width), rel=1e-6)


def test_interval_holds_the_estimate_and_mirrors() -> None:
    for questions in (1, 2, 7, 20):
        for gained in range(questions + 1):
            for lost in range(questions + 1 - gained):
                low, high = difference_interval(gained, lost, questions)
                assert -1 <= low <= (gained - lost) / questions <= high <= 1
                assert difference_interval(lost, gained, questions) == pytest.approx((-high, -low))


@pytest.mark.parametrize(
    ("questions", "gained_share", "lost_share", "least", "most"),
    [
        (1319, 0.02, 0.017, 0.94, 0.96),  # about 49 changed
        (400, 0.015, 0.015, 0.94, 0.96),  # 12 changed
        (400, 0.018, 0.002, 0.94, 0.96),  # 8 changed, most one way
        # With a handful changed no interval can hold exactly 95%: it must not fall below 93%, and
        # is allowed to hold more.
        (50, 0.12, 0.03, 0.93, 0.97),  # about 8 changed
        (1319, 0.0015, 0.0015, 0.93, 0.99),  # 4 changed
        (400, 0.01, 0.0, 0.93, 0.99),  # 4 changed, all one way: the worst case
        (400, 0.0025, 0.0025, 0.93, 1.0),  # 2 changed
    ],
)
def test_interval_covers_the_truth(
    questions: int, gained_share: float, lost_share: float, least: float, most: float
) -> None:
    interval = lru_cache(maxsize=None)(difference_interval)
    shares = [gained_share, lost_share, 1 - gained_share - lost_share]
    draws = np.random.default_rng(6).multinomial(questions, shares, size=20_000)
    truth = gained_share - lost_share
    covered = 0
    for gained, lost, _ in draws.tolist():
        low, high = interval(gained, lost, questions)
        covered += low <= truth <= high
    assert least <= covered / len(draws) <= most


@pytest.mark.parametrize(
    ("questions", "changed_share"), [(1319, 0.04), (400, 0.05), (400, 0.0), (50, 0.2), (8, 0.5)]
)
def test_detectable_difference_is_shown_four_times_in_five(
    questions: int, changed_share: float
) -> None:
    difference = smallest_detectable(questions, changed_share)
    assert difference is not None
    share = max(changed_share, difference)
    gained_share = (share + difference) / 2
    draws = np.random.default_rng(6).multinomial(
        questions, [gained_share, share - gained_share, 1 - share], size=20_000
    )
    p_value = lru_cache(maxsize=None)(mcnemar_p)
    shown = sum(p_value(gained, lost) <= 0.05 for gained, lost, _ in draws.tolist())
    assert shown / len(draws) == pytest.approx(0.80, abs=0.01)


@pytest.mark.parametrize(("questions", "changed_share"), [(1319, 0.04), (1319, 0.1), (400, 0.05)])
def test_detectable_difference_is_near_its_normal_approximation(
    questions: int, changed_share: float
) -> None:
    difference = smallest_detectable(questions, changed_share)
    assert difference is not None
    # Connor (1987): the number of questions at which this difference has 80% power.
    approximation = (
        1.959964 * math.sqrt(changed_share)
        + 0.841621 * math.sqrt(changed_share - difference * difference)
    ) ** 2 / difference**2
    # The exact test needs a few more questions than the approximation says.
    assert 0.9 * questions <= approximation <= questions


def test_more_questions_show_smaller_differences() -> None:
    found = [smallest_detectable(questions, 0.05) for questions in (50, 400, 1319)]
    assert None not in found
    assert found == sorted((value for value in found if value is not None), reverse=True)


def test_too_few_questions_show_nothing() -> None:
    # Five changed questions, all one way, have p = 0.0625; six have p = 0.03125.
    assert smallest_detectable(5, 1.0) is None
    assert smallest_detectable(6, 1.0) is not None


def test_compare_counts_and_names_what_changed() -> None:
    baseline = {"a": True, "b": True, "c": False, "d": False, "e": True, "f": False}
    arm = {"a": True, "b": False, "c": True, "d": False, "e": True, "f": True}
    result = compare(baseline, arm)
    assert (result.questions, result.baseline_right, result.arm_right) == (6, 3, 4)
    assert result.gained == ("c", "f")
    assert result.lost == ("b",)
    assert result.difference == pytest.approx(1 / 6)
    assert (result.low, result.high) == difference_interval(2, 1, 6)
    assert result.p_value == 1.0
    assert result.detectable == smallest_detectable(6, 0.5)


def test_compare_of_equal_arms() -> None:
    result = compare({"a": True, "b": False}, {"a": True, "b": False})
    assert (result.difference, result.p_value, result.gained, result.lost) == (0.0, 1.0, (), ())


def test_compare_refuses_other_questions() -> None:
    with pytest.raises(RigError, match="same questions in the same order"):
        compare({"a": True}, {"b": True})
    with pytest.raises(RigError, match="same questions in the same order"):
        compare({"a": True, "b": True}, {"b": True, "a": True})
    with pytest.raises(RigError, match="no question"):
        compare({}, {})


def test_equal_replies_counts_what_both_arms_have() -> None:
    baseline = {"a": "one", "b": "two", "c": "three"}
    assert equal_replies(baseline, {"a": "one", "b": "Two"}) == (1, 2)
    assert equal_replies(baseline, baseline) == (3, 3)
    assert equal_replies(baseline, {}) == (0, 0)


def paired(both_right: int, gained: int, lost: int, questions: int) -> Pairing:
    both_wrong = questions - both_right - gained - lost
    counts = [(both_right, (True, True)), (gained, (False, True)), (lost, (True, False))]
    told = [right for count, right in [*counts, (both_wrong, (False, False))] for _ in range(count)]
    first, second = ({str(i): right[arm] for i, right in enumerate(told)} for arm in (0, 1))
    return compare(first, second)


def test_least_right_is_what_the_exact_test_can_show_the_loss_of() -> None:
    assert mcnemar_p(0, LEAST_RIGHT) <= 0.05 < mcnemar_p(0, LEAST_RIGHT - 1)


@pytest.mark.parametrize(
    ("both_right", "gained", "lost", "questions", "said"),
    [
        (0, 0, 0, 50, "not_a_test"),
        (5, 0, 0, 50, "not_a_test"),
        (0, 1, 5, 50, "not_a_test"),
        (3, 0, 0, 3, "not_a_test"),  # too few questions
        (6, 0, 0, 50, "none_shown"),
        (50, 0, 0, 50, "none_shown"),
        (40, 2, 4, 50, "none_shown"),
        (0, 0, 6, 50, "worse"),
        (30, 1, 9, 50, "worse"),
        (0, 20, 0, 50, "better"),  # from the floor up, it is one
        (30, 9, 1, 50, "better"),
    ],
)
def test_verdict(both_right: int, gained: int, lost: int, questions: int, said: str) -> None:
    compared = paired(both_right, gained, lost, questions)
    assert verdict(compared, compared.baseline_right) == said


def test_a_difference_counts_only_where_interval_and_exact_test_agree() -> None:
    # Tango's interval lies below 0, the exact p is over 0.05.
    compared = paired(40, 0, 5, 50)
    assert compared.high < 0
    assert compared.p_value > 0.05
    assert verdict(compared, compared.baseline_right) == "none_shown"


def test_right_answers_in_replies_that_were_cut_off_make_no_test() -> None:
    compared = paired(40, 2, 4, 50)
    assert verdict(compared, finished_right=5) == "not_a_test"
    assert verdict(compared, finished_right=6) == "none_shown"


@pytest.mark.parametrize(("right", "questions"), [(0, 50), (1, 7), (31, 50), (1319, 1319)])
def test_interval_of_a_share_is_that_of_statsmodels(right: int, questions: int) -> None:
    expected = proportion_confint(right, questions, alpha=0.05, method="wilson")
    assert share_interval(right, questions) == pytest.approx(expected, abs=1e-9)
