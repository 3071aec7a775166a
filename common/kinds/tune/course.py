"""Tune: which settings are tried, when one is dropped, and how the winner is confirmed.

Everything here is a function of the settings and of the journal, so a run that is continued decides
what it would have decided, and so does a report. docs/METHOD.md explains why.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.errors import RigError
from common.kinds.tune.schema import Dropped
from common.measure import stats
from common.measure.arms import GREEDY
from common.measure.journal import Manifest, Trial
from common.measure.plan import Arm, Round
from common.measure.rows import output_speed
from common.rig import needs_drafter

# Two settings that differ by less are taken as equally good; a change must be worth as much.
WORTH = 1.01
CHOOSE, CONFIRM, DRIFT = "choose", "confirm", "drift"
Changes = Mapping[str, str]


@dataclass(frozen=True)
class Space:
    """What can be tried: the rig's settings, each lever's options, and the prompts (cells).

    An option is what it changes on top of the best so far; a SPEC_TYPE that begins with + is joined
    to the best so far. `looks` are the cells asked before each decision, `confirms` the cells of
    each confirming round, of which none is in `looks`.
    """

    settings: Mapping[str, str]
    levers: Mapping[str, Sequence[Changes]]
    looks: Sequence[Sequence[str]]
    confirms: Sequence[Sequence[str]]

    def to_json(self) -> dict[str, Any]:
        """What the manifest does not hold anyway."""
        return {
            "levers": {lever: [dict(o) for o in options] for lever, options in self.levers.items()},
            "looks": [list(cells) for cells in self.looks],
            "confirms": [list(cells) for cells in self.confirms],
        }


def space_of(manifest: Manifest) -> Space:
    """The space that a run was made with."""
    inputs = manifest["plan"]["inputs"]
    return Space(manifest["settings"], inputs["levers"], inputs["looks"], inputs["confirms"])


@dataclass
class Stage:
    """One lever: the arms that differ by it, and what became of them."""

    lever: str
    arms: list[Arm]
    """the first is the best so far, unchanged"""
    rounds: list[Round] = field(default_factory=list)
    dropped: dict[str, Dropped] = field(default_factory=dict)
    """arm -> after how many prompts, and why"""
    best: Arm | None = None
    """None while it is not decided, or if it was skipped"""
    skipped: str | None = None


@dataclass
class Course:
    """How far a run has come, and what is to be measured next."""

    current: Arm
    stages: list[Stage] = field(default_factory=list)
    winner: Arm | None = None
    """the best found; None while choosing"""
    confirming: list[Arm] = field(default_factory=list)
    """the current setting, the winner and no drafter, each once"""
    confirmed: stats.SpeedUp | None = None
    """the winner over the current setting; None before, or if they are the same"""
    failed: str | None = None
    """why the winner could not be confirmed"""
    todo: list[tuple[Round, Arm]] = field(default_factory=list)

    @property
    def recommended(self) -> bool:
        """Whether the winner is surely better than what is set."""
        low = self.confirmed.low if self.confirmed else None
        return low is not None and low > 1

    @property
    def arms(self) -> dict[str, Arm]:
        """Every arm that was tried, or is to be confirmed."""
        found = [self.current, *(arm for stage in self.stages for arm in stage.arms)]
        return {arm.name: arm for arm in [*found, *self.confirming]}


class Journal:
    """The journal's lines, by round and arm."""

    def __init__(self, lines: Sequence[Trial]) -> None:
        self.speeds: dict[tuple[str, str], dict[str, float]] = {}
        self.failed: dict[tuple[str, str], str] = {}
        self.cells: dict[tuple[str, str], set[str]] = {}
        for line in lines:
            key = (line["round"], line["arm"])
            self.cells.setdefault(key, set()).add(line["cell"])
            if line["failed"] is None:
                self.speeds.setdefault(key, {})[line["cell"]] = output_speed(line)
            else:
                self.failed.setdefault(key, line["failed"])

    def holds(self, turn: Round, arm: Arm) -> bool:
        """Whether all of a round of an arm has been measured, or has failed."""
        assert turn.only is not None
        return turn.only <= self.cells.get((turn.name, arm.name), set())

    def of(self, arm: Arm, rounds: Sequence[Round]) -> dict[stats.Key, float]:
        """Cell and round -> output tokens per second of one arm."""
        return {
            (cell, turn.name): speed
            for turn in rounds
            for cell, speed in self.speeds.get((turn.name, arm.name), {}).items()
        }


def replay(space: Space, lines: Sequence[Trial]) -> Course:
    """Take every decision that the journal allows.

    Raises RigError if the current setting itself failed, or every arm of a lever did.
    """
    journal = Journal(lines)
    best = make_arm(space.settings, {})
    course = Course(best)
    for lever, options in space.levers.items():
        stage = _stage(space, lever, options, best)
        course.stages.append(stage)
        if stage.skipped is None:
            course.todo = _choose(space, stage, journal, course.current)
            if stage.best is None:
                return course
            best = stage.best
    course.winner = best
    _confirm(space, course, journal)
    if not course.todo:
        drift = Round("drift", DRIFT, GREEDY, only=frozenset(space.looks[0]))
        if not journal.holds(drift, course.current):
            course.todo = [(drift, course.current)]
    return course


def _stage(space: Space, lever: str, options: Sequence[Changes], best: Arm) -> Stage:
    """The best so far and each option on top of it, without those that come to the same."""
    found = [best]
    for option in options:
        merged = {**space.settings, **best.changes}
        if not _applies(merged, option):
            continue
        option = dict(option)
        if option.get("SPEC_TYPE", "").startswith("+"):
            option["SPEC_TYPE"] = f"{merged['SPEC_TYPE']},{option['SPEC_TYPE'][1:]}"
        arm = make_arm(space.settings, {**best.changes, **option})
        if arm.name not in [known.name for known in found]:
            found.append(arm)
    if len(found) == 1:
        return Stage(lever, found, skipped=f"nothing to try on top of {best.name}")
    return Stage(lever, found)


def _applies(merged: Mapping[str, str], option: Changes) -> bool:
    if option.get("SPEC_TYPE", "").startswith("+"):
        added = option["SPEC_TYPE"][1:]
        return drafts(merged) and added not in merged["SPEC_TYPE"].split(",")
    return "SPEC_DRAFT_P_MIN" not in option or (
        drafts(merged) and needs_drafter(merged["SPEC_TYPE"])
    )


def _choose(space: Space, stage: Stage, journal: Journal, current: Arm) -> list[tuple[Round, Arm]]:
    """Decide the stage as far as the journal goes; returns what is to be measured next."""
    alive = list(stage.arms)
    for index, cells in enumerate(space.looks):
        turn = Round(f"{stage.lever}-{index + 1}", CHOOSE, GREEDY, only=frozenset(cells))
        blocks = [(turn, arm) for arm in _rotated(alive, index)]
        if not all(journal.holds(turn, arm) for arm in alive):
            return blocks
        stage.rounds.append(turn)
        prompts = sum(len(part) for part in space.looks[: index + 1])
        for arm in alive:
            if reason := journal.failed.get((turn.name, arm.name)):
                _check_current(arm, current, reason)
                stage.dropped[arm.name] = {"after": prompts, "failed": True, "why": reason}
        alive = [arm for arm in alive if arm.name not in stage.dropped]
        if not alive:
            raise RigError(f"every setting of {stage.lever} failed; the last one: {reason}")
        for name, why in _ruled_out(stage, alive, journal):
            stage.dropped[name] = {"after": prompts, "failed": False, "why": why}
        alive = [arm for arm in alive if arm.name not in stage.dropped]
        if len(alive) == 1:
            break
    stage.best = _best(stage, alive, journal)
    return []


def _ruled_out(stage: Stage, alive: list[Arm], journal: Journal) -> Iterator[tuple[str, str]]:
    """Arms that cannot be the best, or cannot be worth a change, with the reason."""
    speeds = {arm.name: journal.of(arm, stage.rounds) for arm in alive}
    leader = max(alive, key=lambda arm: _mean(speeds[arm.name]))
    unchanged = stage.arms[0]
    for arm in alive:
        up = stats.speed_up(speeds[leader.name], speeds[arm.name])
        limit = 1 / WORTH if arm is unchanged else 1
        if arm is not leader and up.high is not None and up.high < limit:
            yield arm.name, f"{_words(up)} the speed of {leader.name}"
        elif unchanged in alive and arm is not unchanged:
            up = stats.speed_up(speeds[unchanged.name], speeds[arm.name])
            if up.high is not None and up.high < WORTH:
                yield arm.name, f"{_words(up)} the speed of {unchanged.name}: not worth a change"


def _best(stage: Stage, alive: list[Arm], journal: Journal) -> Arm:
    """The fastest of those left. While not to change is still a choice: the fastest of those that
    are surely faster, by their interval, and worth a change, by their mean."""
    speeds = {arm.name: journal.of(arm, stage.rounds) for arm in alive}
    unchanged = stage.arms[0]
    ranked = sorted(alive, key=lambda arm: _mean(speeds[arm.name]), reverse=True)
    if unchanged not in alive:
        return ranked[0]
    for arm in ranked[: ranked.index(unchanged)]:
        up = stats.speed_up(speeds[unchanged.name], speeds[arm.name])
        if up.ratio >= WORTH and up.low is not None and up.low > 1:
            return arm
    return unchanged


def _confirm(space: Space, course: Course, journal: Journal) -> None:
    """Hold the winner to the current setting on prompts of their own, in a fixed number of rounds.

    Nothing is looked at before the last round, so the interval means what it says.
    """
    assert course.winner is not None
    none = make_arm(space.settings, {"SPEC_TYPE": ""})
    for arm in (course.current, course.winner, none):
        if arm.name not in [known.name for known in course.confirming]:
            course.confirming.append(arm)
    if len(course.confirming) == 1:
        return
    rounds = confirm_rounds(space)
    for index, turn in enumerate(rounds):
        course.todo += [(turn, arm) for arm in _rotated(course.confirming, index)]
    if not all(journal.holds(turn, arm) for turn, arm in course.todo):
        return
    for turn, arm in course.todo:
        if reason := journal.failed.get((turn.name, arm.name)):
            _check_current(arm, course.current, reason)
            if arm.name == course.winner.name:
                course.failed = reason
    course.todo = []
    if course.winner.name != course.current.name and course.failed is None:
        course.confirmed = by_round(
            journal.of(course.current, rounds), journal.of(course.winner, rounds)
        )


def confirm_rounds(space: Space) -> list[Round]:
    return [
        Round(f"confirm-{index + 1}", CONFIRM, GREEDY, only=frozenset(cells))
        for index, cells in enumerate(space.confirms)
    ]


def by_round(baseline: Mapping[stats.Key, float], arm: Mapping[stats.Key, float]) -> stats.SpeedUp:
    """Speed-up whose interval is over rounds, for rounds that each have their own prompts.

    A round is one start of either server and prompts nobody else is asked, so one round's ratio
    holds everything that varies: prompts, the server's start, and noise. Rounds are independent,
    hence Student's t on their means with rounds - 1 degrees of freedom.
    """
    return stats.speed_up(_turned(baseline), _turned(arm))


def _turned(speeds: Mapping[stats.Key, float]) -> dict[stats.Key, float]:
    return {(turn, cell): speed for (cell, turn), speed in speeds.items()}


def make_arm(settings: Mapping[str, str], changes: Changes) -> Arm:
    """An arm by what it changes in the rig, named by what it does; equal settings, equal name."""
    merged = {**settings, **changes}
    changes = {key: value for key, value in changes.items() if value != settings.get(key, "")}
    if not drafts(merged):
        changes = {key: value for key, value in changes.items() if not key.startswith("SPEC_")}
        if drafts(settings):
            changes["SPEC_TYPE"] = ""
    return Arm(" ".join(_names(merged, changes)), changes)


def _names(merged: Mapping[str, str], changes: Changes) -> Iterator[str]:
    types = merged["SPEC_TYPE"].split(",")
    if not drafts(merged):
        yield "none"
    elif needs_drafter(merged["SPEC_TYPE"]):
        first, *others = types
        kind = "" if first == "draft-mtp" else f"{first} "
        yield "+".join([f"{kind}n={merged['SPEC_DRAFT_N_MAX']}", *others])
        if merged.get("SPEC_DRAFT_P_MIN"):
            yield f"p-min={merged['SPEC_DRAFT_P_MIN']}"
    else:
        yield "+".join(types)
    if "BATCH_SIZE" in changes:
        yield f"b={changes['BATCH_SIZE'] or 'default'}"
    if "UBATCH_SIZE" in changes:
        yield f"ub={changes['UBATCH_SIZE'] or 'default'}"
    if "KV_UNIFIED" in changes:
        yield "shared-kv" if changes["KV_UNIFIED"] == "1" else "per-slot-kv"
    if "CACHE_TYPE_K" in changes:
        yield f"kv={changes['CACHE_TYPE_K']}"


def drafts(settings: Mapping[str, str]) -> bool:
    """Whether these settings draft at all."""
    if not settings["SPEC_TYPE"]:
        return False
    return not needs_drafter(settings["SPEC_TYPE"]) or bool(settings["SPEC_DRAFT_MODEL"])


def grid(space: Space) -> list[Arm]:
    """The full grid: every option of every lever with every other, each setting once."""
    found = [make_arm(space.settings, {})]
    for lever, options in space.levers.items():
        more = {arm.name: arm for arm in found}
        for arm in found:
            more |= {option.name: option for option in _stage(space, lever, options, arm).arms}
        found = list(more.values())
    return found


def at_most(space: Space) -> int:
    """How many trials a run can come to, if nothing is dropped."""
    prompts = sum(len(cells) for cells in space.looks)
    arms = sum(1 + len(options) for options in space.levers.values())
    confirming = 3 * sum(len(cells) for cells in space.confirms)
    return arms * prompts + confirming + len(space.looks[0])


def _check_current(arm: Arm, current: Arm, reason: str) -> None:
    if arm.name == current.name:
        raise RigError(
            f"the current setting ({arm.name}) itself failed: {reason}\n"
            "Mend that, then measure anew, without RESUME=1."
        )


def _rotated(arms: list[Arm], index: int) -> list[Arm]:
    first = index % len(arms)
    return [*arms[first:], *arms[:first]]


def _mean(speeds: Mapping[stats.Key, float]) -> float:
    """Mean of the logarithms."""
    return statistics.fmean(math.log(speed) for speed in speeds.values())


def _words(up: stats.SpeedUp) -> str:
    return f"{up.ratio:.3f}x ({up.low:.3f} to {up.high:.3f})"
