"""How tune decides: by hand, and when it is stopped anywhere."""

import math
import statistics
from typing import Any

import pytest

from common.errors import RigError
from common.kinds.tune import course as tune
from common.kinds.tune.choosing import best, over_prompts, ruled_out
from common.kinds.tune.course import Course, Space
from common.measure.plan import Arm, Plan, Round, rounds_of
from common.measure.stats import SpeedUp
from tests.kinds.tune.world import (
    TOKENS,
    Noise,
    World,
    by_length,
    flat,
    line,
    long_but_sure,
    loses,
    space,
)


def test_every_second_round_has_the_order_reversed() -> None:
    """A steady trend of the machine falls on all arms alike: over two rounds each arm has the same
    place on average, whatever was dropped between them."""
    arms = [Arm(name, {}) for name in "abcde"]
    for left in (arms, arms[1:], [arms[0], arms[3]]):
        for index in (0, 2, 4):
            first = [arm for arm in tune.in_turn(arms, index) if arm in left]
            again = [arm for arm in tune.in_turn(arms, index + 1) if arm in left]
            assert first == again[::-1]
    assert tune.in_turn(arms, 2)[0] == arms[1]


def test_the_order_is_the_one_that_other_measurements_have() -> None:
    arms = [Arm(name, {}) for name in "abc"]
    rounds = rounds_of("greedy", 8, {})
    blocks = Plan("speed", arms, [], rounds).blocks()
    ours = [(turn, arm) for index, turn in enumerate(rounds) for arm in tune.in_turn(arms, index)]
    assert ours == blocks


def test_the_confirmation_is_mirrored() -> None:
    of = space()
    world = World(of, long_but_sure, Noise(trial=0.01), 1)
    world.tuned()
    orders: dict[str, list[str]] = {}
    for one in world.lines:
        if one["round"].startswith("confirm"):
            orders.setdefault(one["round"], []).append(one["arm"])
    found = list(orders.values())
    assert len(found) == 16
    assert {len(order) for order in found} == {3}
    assert all(first == again[::-1] for first, again in zip(found[::2], found[1::2], strict=True))
    assert len(of.looks) % 2 == 0


def test_a_run_stopped_anywhere_goes_on_to_the_same_end() -> None:
    of = space(spec_draft_n_max="1")
    whole = World(of, long_but_sure, Noise(trial=0.02), 3)
    course = whole.tuned()
    for cut in range(0, len(whole.lines), 7):
        again = World(of, long_but_sure, Noise(trial=0.02), 3)
        again.lines = whole.lines[:cut]
        held = {(line["round"], line["arm"], line["cell"]) for line in again.lines}
        while todo := tune.replay(of, again.lines).todo:
            for turn, arm in todo:  # as measure does: only what the journal does not hold
                lines = again.trials(turn, arm)
                new = [x for x in lines if (x["round"], x["arm"], x["cell"]) not in held]
                again.lines += new
                held |= {(x["round"], x["arm"], x["cell"]) for x in new}
        assert again.lines == whole.lines
        assert tune.replay(of, again.lines).winner == course.winner


def test_the_full_grid_by_hand() -> None:
    """No drafter, and four lengths, each alone or joined, each at three p-mins."""
    of = space()
    assert len(tune.grid(of)) == 1 + 4 * 2 * 3
    assert len({arm.name for arm in tune.grid(of)}) == 25


def test_no_run_takes_more_trials_than_it_says() -> None:
    of = space()
    for seed in range(5):
        world = World(of, flat, Noise(trial=0.02), seed)
        world.tuned()
        assert len(world.lines) <= tune.at_most(of)


def measured(of: Space, speeds: dict[str, list[float]], stage: str = "draft") -> Course:
    """The course after the first look, with these speeds of each arm at its prompts."""
    lines = []
    for turn, arm in tune.replay(of, []).todo:
        assert turn.name == f"{stage}-1"
        for cell, speed in zip(sorted(turn.only or ()), speeds[arm.name], strict=True):
            lines.append(line(turn.name, arm.name, cell, TOKENS / speed))
    return tune.replay(of, lines)


def test_an_arm_is_dropped_as_soon_as_its_interval_is_below_the_best() -> None:
    course = measured(
        space(tune_n_max="2", tune_levers="draft"),
        {
            "n=2": [50.0, 60.0, 55.0],
            "none": [40.0, 47.0, 45.0],  # surely slower than n=1
            "n=1": [60.0, 71.0, 67.0],
        },
    )
    (stage,) = course.stages
    assert stage.dropped["none"]["after"] == 3
    assert "the speed of n=1" in stage.dropped["none"]["why"]
    assert list(stage.dropped) == ["n=2", "none"]
    assert stage.best is not None
    assert stage.best.name == "n=1"  # alone, so nothing more is asked of it


def test_an_arm_that_may_be_the_best_stays() -> None:
    course = measured(
        space(tune_n_max="2", tune_levers="draft"),
        {
            "n=2": [50.0, 60.0, 55.0],
            "none": [20.0, 24.0, 23.0],
            "n=1": [60.0, 50.0, 66.0],
        },
    )
    (stage,) = course.stages
    assert list(stage.dropped) == ["none"]
    assert stage.best is None
    assert [(turn.name, arm.name) for turn, arm in course.todo] == [
        ("draft-2", "n=1"),
        ("draft-2", "n=2"),  # the order is reversed
    ]
    assert not {cell for turn, _ in course.todo for cell in turn.only or ()} & set(
        tune.replay(space(), []).todo[0][0].only or ()
    )


def test_less_than_a_percent_is_no_reason_to_change() -> None:
    """n=1 is surely faster than the current n=2, but only by half a percent."""
    course = measured(
        space(tune_n_max="2", tune_levers="draft"),
        {
            "n=2": [50.0, 60.0, 55.0],
            "none": [20.0, 24.0, 23.0],
            "n=1": [50.25, 60.31, 55.27],
        },
    )
    (stage,) = course.stages
    assert "n=1" in stage.dropped
    assert "n=2" in stage.dropped or stage.best == course.current


def failed(lines: list[Any], arm: str, reason: str) -> list[Any]:
    return [{**one, "failed": reason, "samples": []} if one["arm"] == arm else one for one in lines]


def first_look(of: Space) -> list[Any]:
    world = World(of, by_length, Noise(trial=0.01), 1)
    return [line for turn, arm in tune.replay(of, []).todo for line in world.trials(turn, arm)]


def test_a_setting_that_fails_is_dropped_with_its_reason() -> None:
    of = space()
    course = tune.replay(of, failed(first_look(of), "n=4", "out of memory"))
    assert course.stages[0].dropped["n=4"] == {"after": 3, "failed": True, "why": "out of memory"}
    assert "n=4" not in [arm.name for _, arm in course.todo]


def test_a_current_setting_that_fails_stops_the_run() -> None:
    of = space()
    with pytest.raises(RigError, match=r"the current setting \(n=2\) itself failed: no luck"):
        tune.replay(of, failed(first_look(of), "n=2", "no luck"))


def test_a_winner_that_fails_when_confirmed_is_not_recommended() -> None:
    of = space(spec_draft_n_max="1", tune_levers="draft")
    world = World(of, by_length, Noise(trial=0.01), 1)
    course = world.tuned()
    assert course.recommended
    assert course.winner is not None
    lines = [
        *[one for one in world.lines if not one["round"].startswith("confirm")],
        *failed(
            [one for one in world.lines if one["round"].startswith("confirm")],
            course.winner.name,
            "died",
        ),
    ]
    course = tune.replay(of, lines)
    assert (course.failed, course.recommended) == ("died", False)


def test_nothing_is_confirmed_by_a_prompt_that_chose_it() -> None:
    of = space()
    choose = {cell for cells in of.looks for cell in cells}
    confirm = [cell for cells in of.confirms for cell in cells]
    assert not choose & set(confirm)
    assert len(confirm) == len(set(confirm)) == 16


def test_levers_stand_on_the_best_so_far() -> None:
    of = space(spec_draft_n_max="1")
    course = World(of, long_but_sure, Noise(trial=0.001, start=0.0), 1).tuned()
    draft, types, p_min = course.stages
    assert [arm.name for arm in draft.arms] == ["n=1", "none", "n=2", "n=3", "n=4"]
    assert [arm.name for arm in types.arms] == ["n=2", "n=2+ngram-mod"]
    assert [arm.name for arm in p_min.arms] == [
        "n=2",
        "n=2 p-min=0.5",
        "n=4 p-min=0.5",
        "n=2 p-min=0.75",
        "n=4 p-min=0.75",
    ]
    assert course.winner is not None
    assert course.winner.changes == {"SPEC_DRAFT_N_MAX": "4", "SPEC_DRAFT_P_MIN": "0.5"}
    assert [arm.name for arm in course.confirming] == ["n=1", "n=4 p-min=0.5", "none"]


def test_levers_that_need_a_drafter_are_skipped_without_one() -> None:
    course = World(space(), loses, Noise(trial=0.01), 1).tuned()
    assert [stage.skipped for stage in course.stages] == [
        None,
        "nothing to try on top of none",
        "nothing to try on top of none",
    ]
    assert course.winner == Arm("none", {"SPEC_TYPE": ""})


def test_the_current_setting_is_held_to_no_drafter_when_nothing_beats_it() -> None:
    course = World(space(), by_length, Noise(trial=0.005, setting=0), 1).tuned()
    assert course.winner == course.current
    assert [arm.name for arm in course.confirming] == ["n=2", "none"]
    assert course.confirmed is None
    assert not course.recommended


def test_without_drafter_as_it_is_and_best_there_is_nothing_to_confirm() -> None:
    world = World(space(spec_type=""), loses, Noise(trial=0.005), 1)
    course = world.tuned()
    assert course.current.name == "none"
    assert course.winner == course.current
    assert {one["round"] for one in world.lines} >= {"draft-1", "drift"}
    assert not [one for one in world.lines if one["round"].startswith("confirm")]


def test_equal_settings_have_equal_names() -> None:
    settings = space().settings
    assert tune.make_arm(settings, {"SPEC_DRAFT_N_MAX": "2"}) == tune.make_arm(settings, {})
    none = tune.make_arm(settings, {"SPEC_TYPE": "", "SPEC_DRAFT_N_MAX": "3"})
    assert none == Arm("none", {"SPEC_TYPE": ""})
    ngram = tune.make_arm(settings, {"SPEC_TYPE": "ngram-simple,ngram-mod", "UBATCH_SIZE": "256"})
    assert ngram.name == "ngram-simple+ngram-mod ub=256"


def test_while_choosing_the_interval_is_over_prompts() -> None:
    """Two looks of two prompts: log ratios 0.1, 0.2 and 0.3, 0.4; t of 3 degrees of freedom."""
    logs = {("a", "1"): 0.1, ("b", "1"): 0.2, ("c", "2"): 0.3, ("d", "2"): 0.4}
    up = over_prompts(dict.fromkeys(logs, 1.0), {key: math.exp(x) for key, x in logs.items()})
    half = 3.182446 * statistics.stdev(logs.values()) / 2
    assert up.low == pytest.approx(math.exp(0.25 - half))
    assert up.high == pytest.approx(math.exp(0.25 + half))


def test_once_a_change_is_worth_it_the_fastest_is_taken() -> None:
    """n=1 is surely faster than the current n=2; n=3 is faster still, but its prompts differ."""
    prompts = [("a", "1"), ("b", "1"), ("c", "2")]
    ratios = {"n=2": (1.0, 1.0, 1.0), "n=1": (1.1, 1.11, 1.12), "n=3": (1.0, 1.3, 1.6)}
    speeds = {name: dict(zip(prompts, own, strict=True)) for name, own in ratios.items()}
    assert best(speeds, "n=2") == "n=3"
    assert best({name: speeds[name] for name in ("n=2", "n=3")}, "n=2") == "n=2"


@pytest.mark.parametrize(
    ("low", "above", "recommended"),
    [(1.01, 12, True), (1.009, 16, False), (1.2, 11, False), (None, 16, False)],
)
def test_what_is_recommended(low: float | None, above: int, recommended: bool) -> None:
    """By the interval's lower end, and by how many of the single rounds agree."""
    course = Course(Arm("n=2", {}))
    assert not course.recommended
    rounds = {str(index): 1.2 if index < above else 0.99 for index in range(16)}
    course.confirmed = SpeedUp(1.3, low, 1.5, rounds)
    assert course.recommended is recommended


def test_one_prompt_rules_nothing_out() -> None:
    """It gives no interval, however slow an arm is."""
    alone = {"n=1": {("a", "1"): 90.0}, "n=2": {("a", "1"): 10.0}}
    assert list(ruled_out(alone, "n=1")) == []


def test_a_round_is_held_when_all_its_prompts_are() -> None:
    turn = Round("draft-1", tune.CHOOSE, {}, only=frozenset({"a", "b"}))
    arm = Arm("none", {})
    one = line("draft-1", "none", "a", 1.0)
    assert not tune.Journal([one]).holds(turn, arm)
    assert tune.Journal([one, one | {"cell": "b", "failed": "died"}]).holds(turn, arm)
