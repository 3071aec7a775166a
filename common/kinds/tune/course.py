"""Tune: which settings are tried, when one is dropped, and how the winner is confirmed.

Everything here is a function of the settings and of the journal, so a run that is continued decides
what it would have decided, and so does a report. docs/METHOD.md explains why.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.errors import RigError
from common.kinds.tune import choosing
from common.kinds.tune.choosing import WORTH
from common.kinds.tune.schema import Dropped
from common.measure import stats
from common.measure.arms import SAMPLING
from common.measure.journal import Manifest, Trial
from common.measure.plan import Arm, Round, seeded
from common.measure.rows import output_speed
from common.rig import needs_drafter

RULE = 2
"""of asking and deciding; 1 asked the tasks of documents and many in several rounds"""
MOSTLY = 3 / 4
CHOOSE, CONFIRM, DRIFT = "choose", "confirm", "drift"
Changes = Mapping[str, str]


@dataclass(frozen=True)
class Space:
    """What can be tried: the rig's settings, each lever's options, and the prompts (cells).

    An option is what it changes on top of the best so far; a SPEC_TYPE that begins with + is joined
    to the best so far. `looks` are the cells asked before each decision, `confirms` the cells of
    each confirming round, of which none is in `looks`. `headline` says how replies are drawn.
    """

    settings: Mapping[str, str]
    levers: Mapping[str, Sequence[Changes]]
    looks: Sequence[Sequence[str]]
    confirms: Sequence[Sequence[str]]
    headline: str = "greedy"

    def turn(self, name: str, kind: str, cells: Sequence[str], index: int) -> Round:
        """The round of this index of its kind."""
        return Round(name, kind, seeded(SAMPLING[self.headline], index), only=frozenset(cells))

    def look(self, lever: str, index: int) -> Round:
        return self.turn(f"{lever}-{index + 1}", CHOOSE, self.looks[index], index)

    def drift(self) -> Round:
        """The first look of the first arm again."""
        return self.turn(DRIFT, DRIFT, self.looks[0], 0)

    def to_json(self) -> dict[str, Any]:
        """What the manifest does not hold anyway."""
        return {
            "rule": RULE,
            "levers": {lever: [dict(o) for o in options] for lever, options in self.levers.items()},
            "looks": [list(cells) for cells in self.looks],
            "confirms": [list(cells) for cells in self.confirms],
            "headline": self.headline,
        }


def space_of(manifest: Manifest) -> Space:
    """The space that a run was made with.

    Raises RigError if its rounds shared tasks: no interval over rounds can be had of them.
    """
    inputs = manifest["plan"]["inputs"]
    if inputs.get("rule", 1) < RULE and inputs["workload"] != "chat":
        raise RigError(
            f"this tune run of {inputs['workload']} asked the same tasks in several rounds, so "
            "what it found is less sure than it looks; measure anew"
        )
    return Space(
        manifest["settings"],
        inputs["levers"],
        inputs["looks"],
        inputs["confirms"],
        inputs.get("headline", "greedy"),
    )


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
        """Whether the winner is surely better than what is set, by what a change must be worth,
        and not by a few rounds alone."""
        up = self.confirmed
        return up is not None and up.low is not None and up.low >= WORTH and mostly_ahead(up)

    @property
    def arms(self) -> dict[str, Arm]:
        """Every arm that was tried, or is to be confirmed."""
        found = [self.current, *(arm for stage in self.stages for arm in stage.arms)]
        return {arm.name: arm for arm in [*found, *self.confirming]}


def mostly_ahead(up: stats.SpeedUp) -> bool:
    """Whether enough single rounds lie above 1: an interval of Student's t can be carried by a few
    that stand far out, as on a host whose load changes meanwhile."""
    ahead = sum(ratio > 1 for ratio in up.rounds.values())
    return ahead >= MOSTLY * len(up.rounds)


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
        drift = space.drift()
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
    for index in range(len(space.looks)):
        turn = space.look(stage.lever, index)
        # The order is that of all arms, so that those left are mirrored whatever was dropped.
        blocks = [(turn, arm) for arm in in_turn(stage.arms, index) if arm in alive]
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
        for name, why in choosing.ruled_out(_speeds(stage, alive, journal), stage.arms[0].name):
            stage.dropped[name] = {"after": prompts, "failed": False, "why": why}
        alive = [arm for arm in alive if arm.name not in stage.dropped]
        if len(alive) == 1:
            break
    name = choosing.best(_speeds(stage, alive, journal), stage.arms[0].name)
    stage.best = next(arm for arm in alive if arm.name == name)
    return []


def _speeds(stage: Stage, arms: Sequence[Arm], journal: Journal) -> dict[str, choosing.Speeds]:
    """Arm -> its speeds in the looks that are done."""
    return {arm.name: journal.of(arm, stage.rounds) for arm in arms}


def _confirm(space: Space, course: Course, journal: Journal) -> None:
    """Hold the winner to the current setting on prompts of their own, in a fixed number of rounds.

    A round is one start of either server and prompts that no other round asks, so its ratio holds
    everything that varies: the interval is Student's t over rounds. Nothing is looked at before the
    last one. The winner was picked on other prompts and starts, so its interval needs no correction
    for having been picked.
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
        course.todo += [(turn, arm) for arm in in_turn(course.confirming, index)]
    if not all(journal.holds(turn, arm) for turn, arm in course.todo):
        return
    for turn, arm in course.todo:
        if reason := journal.failed.get((turn.name, arm.name)):
            _check_current(arm, course.current, reason)
            if arm.name == course.winner.name:
                course.failed = reason
    course.todo = []
    if course.winner.name != course.current.name and course.failed is None:
        course.confirmed = stats.speed_up(
            journal.of(course.current, rounds), journal.of(course.winner, rounds)
        )


def confirm_rounds(space: Space) -> list[Round]:
    return [
        space.turn(f"{CONFIRM}-{index + 1}", CONFIRM, cells, index)
        for index, cells in enumerate(space.confirms)
    ]


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


def in_turn(arms: Sequence[Arm], index: int) -> list[Arm]:
    """The arms in the order of the round of this index, as Plan.blocks has it: every second round
    has that of the one before it reversed, and each such pair begins one arm further on."""
    first = index // 2 % len(arms)
    order = [*arms[first:], *arms[:first]]
    return order[::-1] if index % 2 else order
