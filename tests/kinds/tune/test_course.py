"""How tune decides: on machines of known speed, by hand, and when it is stopped anywhere."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from common import rig
from common.errors import RigError
from common.kinds.tune import course as tune
from common.kinds.tune import plan as tune_plan
from common.kinds.tune.course import Course, Space
from common.measure import stats
from common.measure.plan import Arm, Round
from tests.conftest import TINY
from tests.kinds.tune.world import TOKENS, Noise, Truth, World, line

SEEDS = 120
TRIAL_NOISE = (0.01, 0.02, 0.03)


@pytest.fixture(scope="module", autouse=True)
def remembered() -> Iterator[None]:
    """A course is replayed at every look; the same speed-ups need not be worked out each time."""
    known: dict[object, stats.SpeedUp] = {}
    work_out = stats.speed_up

    def speed_up(
        baseline: Mapping[stats.Key, float], arm: Mapping[stats.Key, float]
    ) -> stats.SpeedUp:
        key = (tuple(baseline.items()), tuple(arm.items()))
        if key not in known:
            if len(known) > 500:
                known.clear()
            known[key] = work_out(baseline, arm)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stats, "speed_up", speed_up)
        yield


def space(**changes: str) -> Space:
    """What tune tries on the known-answer rig, with some settings changed."""
    changed = rig.load(TINY, environ={}).variant({k.upper(): v for k, v in changes.items()})
    inputs = tune_plan.plan(tune_plan.base(changed)).inputs
    return Space(changed.settings(), inputs["levers"], inputs["looks"], inputs["confirms"])


def by_length(settings: Mapping[str, str]) -> float:
    """A small card: two drafted tokens are best, joining n-grams costs a little."""
    if not tune.drafts(settings):
        return 1.0
    up = {1: 1.25, 2: 1.4, 3: 1.32, 4: 1.2}[int(settings["SPEC_DRAFT_N_MAX"])]
    return up * (0.96 if "ngram-mod" in settings["SPEC_TYPE"] else 1)


def long_but_sure(settings: Mapping[str, str]) -> float:
    """The longest draft is best, but only if it ends where the drafter is unsure."""
    sure = settings["SPEC_DRAFT_P_MIN"] == "0.5" and settings["SPEC_DRAFT_N_MAX"] == "4"
    return by_length(settings) * (1.25 if tune.drafts(settings) and sure else 1)


def loses(settings: Mapping[str, str]) -> float:
    return 1 - 0.06 * int(settings["SPEC_DRAFT_N_MAX"]) if tune.drafts(settings) else 1.0


def flat(_settings: Mapping[str, str]) -> float:
    return 1.0


def third_ahead(gain: float) -> Truth:
    """All lengths are worth as much, but the third is a little better."""

    def truth(settings: Mapping[str, str]) -> float:
        if not tune.drafts(settings):
            return 1.0
        return 1.3 * (1 + gain if settings["SPEC_DRAFT_N_MAX"] == "3" else 1)

    return truth


def tuned(of: Space, truth: Truth, seeds: int) -> list[tuple[World, Course]]:
    found = []
    for seed in range(seeds):
        noise = Noise(trial=TRIAL_NOISE[seed % len(TRIAL_NOISE)])
        world = World(of, truth, noise, seed)
        found.append((world, world.tuned()))
    return found


@pytest.mark.parametrize(
    ("of", "truth"),
    [
        ({"spec_draft_n_max": "1"}, by_length),
        ({}, by_length),
        ({"spec_draft_n_max": "1"}, long_but_sure),
        ({}, loses),
    ],
    ids=["another length", "the current one", "two levers together", "no drafter"],
)
def test_the_best_is_found_in_less_than_half_the_time_of_the_full_grid(
    of: dict[str, str], truth: Truth
) -> None:
    """Best means within 1% of the best of the whole grid, by the speeds that are known."""
    found = tuned(space(**of), truth, SEEDS)
    best = [world.final(course) >= world.best() / tune.WORTH for world, course in found]
    assert sum(best) / SEEDS >= 0.95
    assert sum(world.share_of_grid() for world, _ in found) / SEEDS < 0.5
    choosing = [world.seconds[tune.CHOOSE] / world.grid_seconds() for world, _ in found]
    assert sum(choosing) / SEEDS < 0.5


def test_without_a_true_difference_a_change_is_hardly_ever_recommended() -> None:
    seeds = 200
    found = [course.recommended for _, course in tuned(space(), flat, seeds)]
    assert sum(found) / seeds < 0.05


def test_the_final_interval_alone_keeps_false_alarms_below_5_percent() -> None:
    """As if every winner went to the confirmation, with server starts that differ by 2%."""
    alarms, runs = 0, 1500
    of = space(tune_levers="draft")
    current, other = (tune.make_arm(of.settings, {"SPEC_DRAFT_N_MAX": n}) for n in ("2", "1"))
    rounds = tune.confirm_rounds(of)
    for seed in range(runs):
        world = World(of, flat, Noise(trial=0.02, start=0.02), seed)
        lines = [
            line for turn in rounds for arm in (current, other) for line in world.trials(turn, arm)
        ]
        journal = tune.Journal(lines)
        up = tune.by_round(journal.of(current, rounds), journal.of(other, rounds))
        assert up.low is not None
        alarms += up.low > 1
    assert 0.01 < alarms / runs < 0.04  # 2.5% is what a 95% interval promises


@pytest.mark.parametrize(("gain", "least"), [(0.08, 0.95), (0.05, 0.8)])
def test_how_small_a_difference_is_found(gain: float, least: float) -> None:
    """What docs/METHOD.md says of differences that noise can hide."""
    found = tuned(space(tune_levers="draft"), third_ahead(gain), SEEDS)
    best = [world.final(course) >= world.best() / tune.WORTH for world, course in found]
    assert sum(best) / SEEDS >= least


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
    for world, _course in tuned(of, flat, 5):
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
            "n=2": [50.0, 60.0, 55.0, 52.0],
            "none": [40.0, 47.0, 45.0, 41.0],  # surely slower than n=1
            "n=1": [60.0, 70.0, 69.0, 60.0],
        },
    )
    (stage,) = course.stages
    assert stage.dropped["none"]["after"] == 4
    assert "the speed of n=1" in stage.dropped["none"]["why"]
    assert list(stage.dropped) == ["n=2", "none"]
    assert stage.best is not None
    assert stage.best.name == "n=1"  # alone, so nothing more is asked of it


def test_an_arm_that_may_be_the_best_stays() -> None:
    course = measured(
        space(tune_n_max="2", tune_levers="draft"),
        {
            "n=2": [50.0, 60.0, 55.0, 52.0],
            "none": [20.0, 24.0, 23.0, 21.0],
            "n=1": [60.0, 50.0, 66.0, 47.0],
        },
    )
    (stage,) = course.stages
    assert list(stage.dropped) == ["none"]
    assert stage.best is None
    assert [(turn.name, arm.name) for turn, arm in course.todo] == [
        ("draft-2", "n=1"),
        ("draft-2", "n=2"),  # the order rotates
    ]
    assert not {cell for turn, _ in course.todo for cell in turn.only or ()} & set(
        tune.replay(space(), []).todo[0][0].only or ()
    )


def test_less_than_a_percent_is_no_reason_to_change() -> None:
    """n=1 is surely faster than the current n=2, but only by half a percent."""
    course = measured(
        space(tune_n_max="2", tune_levers="draft"),
        {
            "n=2": [50.0, 60.0, 55.0, 52.0],
            "none": [20.0, 24.0, 23.0, 21.0],
            "n=1": [50.25, 60.31, 55.27, 52.26],
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
    assert course.stages[0].dropped["n=4"] == {"after": 4, "failed": True, "why": "out of memory"}
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


def test_the_interval_is_over_rounds() -> None:
    """Two rounds of two prompts: ratios 1.1 and 1.3, then 1.2 and 1.2."""
    base = {(cell, turn): 1.0 for turn, cell in (("1", "a"), ("1", "b"), ("2", "c"), ("2", "d"))}
    ratios = {("a", "1"): 1.1, ("b", "1"): 1.3, ("c", "2"): 1.2, ("d", "2"): 1.2}
    up = tune.by_round(base, ratios)
    means = [math.log(1.1 * 1.3) / 2, math.log(1.2)]
    assert up.ratio == pytest.approx(math.exp(sum(means) / 2))
    units = {("1", ""): math.exp(means[0]), ("2", ""): math.exp(means[1])}
    alone = stats.speed_up(dict.fromkeys(units, 1.0), units)
    assert up.low == pytest.approx(alone.low)
    assert up.high == pytest.approx(alone.high)


def test_a_round_is_held_when_all_its_prompts_are() -> None:
    turn = Round("draft-1", tune.CHOOSE, {}, only=frozenset({"a", "b"}))
    arm = Arm("none", {})
    one = line("draft-1", "none", "a", 1.0)
    assert not tune.Journal([one]).holds(turn, arm)
    assert tune.Journal([one, one | {"cell": "b", "failed": "died"}]).holds(turn, arm)
