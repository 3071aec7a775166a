"""Plan: in what order arms are measured, and what a trend of the machine does to a ratio."""

import math
import statistics
from itertools import combinations

import pytest

from common.measure import stats
from common.measure.plan import Arm, Cell, Plan, rounds_of


def plan(arms: int, rounds: int, cells: int = 6) -> Plan:
    return Plan(
        "speed",
        [Arm(str(index), {}) for index in range(arms)],
        [Cell(f"cell {index}", []) for index in range(cells)],
        rounds_of("greedy", rounds, {}),
    )


@pytest.mark.parametrize("arms", [2, 3, 4, 7])
@pytest.mark.parametrize("rounds", [2, 4, 6])
def test_each_arm_comes_as_often_before_as_after_each_other(arms: int, rounds: int) -> None:
    own = plan(arms, rounds)
    for one, other in combinations(own.arms, 2):
        before = 0
        for turn in own.rounds:
            order = [arm for place, arm in own.blocks() if place == turn]
            before += order.index(one) < order.index(other)
        assert before == rounds / 2


def ratios(own: Plan, trend: float, bend: float) -> list[float]:
    """Every arm's ratio to the first on a machine that gets slower by `trend` over the run,
    steadily and `bend` more towards the end; all arms are equally fast."""
    speeds: dict[str, dict[stats.Key, float]] = {arm.name: {} for arm in own.arms}
    steps = [(turn, arm, cell) for turn, arm in own.blocks() for cell in own.asked(turn)]
    for index, (turn, arm, cell) in enumerate(steps):
        at = index / len(steps)
        speeds[arm.name][cell.name, turn.name] = math.exp(-trend * at - bend * at**2)
    base, *others = (speeds[arm.name] for arm in own.arms)
    return [stats.speed_up(base, other).ratio for other in others]


@pytest.mark.parametrize(("arms", "rounds"), [(2, 4), (4, 4), (5, 4), (4, 2)])
def test_a_steady_trend_bends_no_ratio(arms: int, rounds: int) -> None:
    assert ratios(plan(arms, rounds), 0.10, 0) == pytest.approx([1] * (arms - 1), abs=1e-9)


def test_what_a_bent_trend_leaves_is_small() -> None:
    """10% slower in all, all of it bent: with four arms and rounds at most 0.25% is left; three
    rotating rounds left half a percent of a steady one."""
    left = [abs(ratio - 1) for ratio in ratios(plan(4, 4), 0, 0.10)]
    assert max(left) < 0.0025
    assert statistics.fmean(left) > 0
