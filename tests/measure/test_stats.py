"""Intervals: coverage by simulation, verdicts, pairing, drift."""

import math

import numpy as np
import pytest

from common.measure import stats


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """6 cells x 3 rounds, cells that really differ, noise in both arms."""
    rng = np.random.default_rng(7)
    truth, runs, hits = math.log(1.4), 4000, 0
    for _ in range(runs):
        of_cell = truth + rng.normal(0, 0.08, 6)
        base: dict[stats.Key, float] = {}
        arm: dict[stats.Key, float] = {}
        for cell in range(6):
            for turn in range(3):
                key = (str(cell), str(turn))
                base[key] = 100 * math.exp(rng.normal(0, 0.02))
                arm[key] = 100 * math.exp(of_cell[cell] + rng.normal(0, 0.02))
        up = stats.speed_up(base, arm)
        assert up.low is not None
        assert up.high is not None
        hits += up.low <= math.exp(truth) <= up.high
    assert 0.93 <= hits / runs <= 0.97


def test_no_difference_is_called_even_as_often_as_it_should() -> None:
    rng = np.random.default_rng(8)
    calls = []
    for _ in range(2000):
        base = {(str(cell), "1"): math.exp(rng.normal(0, 0.05)) for cell in range(6)}
        arm = {key: math.exp(rng.normal(0, 0.05)) for key in base}
        calls.append(stats.speed_up(base, arm).verdict)
    assert 0.93 <= calls.count("even") / len(calls) <= 0.97


def test_a_slow_machine_does_not_matter_when_both_arms_are_slow() -> None:
    base = {("a", "1"): 100.0, ("a", "2"): 50.0, ("b", "1"): 80.0, ("b", "2"): 40.0}
    arm = {key: speed * 1.5 for key, speed in base.items()}
    up = stats.speed_up(base, arm)
    assert up.ratio == pytest.approx(1.5)
    assert up.low == pytest.approx(1.5)
    assert up.round_spread == pytest.approx(0)
    assert up.verdict == "pays"


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([1.2, 1.3, 1.25], "pays"),
        ([0.8, 0.9, 0.85], "loses"),
        ([0.9, 1.2, 1.0], "even"),
        ([1.5], "unknown"),
    ],
)
def test_verdicts(ratios: list[float], verdict: str) -> None:
    base = {(str(i), "1"): 10.0 for i in range(len(ratios))}
    arm = {(str(i), "1"): 10.0 * ratio for i, ratio in enumerate(ratios)}
    assert stats.speed_up(base, arm).verdict == verdict


def test_only_what_both_arms_measured_is_paired() -> None:
    base = {("a", "1"): 10.0, ("b", "1"): 1.0}
    assert stats.speed_up(base, {("a", "1"): 20.0, ("c", "1"): 9.0}).ratio == pytest.approx(2)
    with pytest.raises(ValueError, match="no cell and round"):
        stats.speed_up(base, {("c", "1"): 9.0})


def test_the_interval_by_hand() -> None:
    """Three cells with log ratios 0.1, 0.2, 0.3: mean 0.2, sd 0.1, t(2) = 4.302653."""
    base = {(c, "1"): 1.0 for c in "abc"}
    arm = {(c, "1"): math.exp(x) for c, x in zip("abc", (0.1, 0.2, 0.3), strict=True)}
    up = stats.speed_up(base, arm)
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert up.low == pytest.approx(math.exp(0.2 - half), rel=1e-6)
    assert up.high == pytest.approx(math.exp(0.2 + half), rel=1e-6)


def test_drift() -> None:
    assert stats.drift({"a": 100.0, "b": 50.0}, {"a": 98.0, "b": 49.0}) == pytest.approx(-0.02)
    assert stats.drift({"a": 100.0}, {}) is None
