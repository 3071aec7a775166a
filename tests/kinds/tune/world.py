"""A machine whose speed at every setting is known: it writes a journal's lines as one would.

The logarithm of a trial's speed is the sum of
- what is known: the setting's true speed over no drafter,
- the machine in that round, the same for all arms,
- how the prompt takes to drafting, the same for all arms that draft, and to this setting,
- the server's start: the same for all prompts that one start is asked,
- noise of the single trial.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from common.kinds.tune import course as tune
from common.kinds.tune.course import Course, Space
from common.measure.plan import Arm, Round
from common.serving.client import Reply

TOKENS = 128
BASE = 60.0  # tokens per second without drafter
START_S = 2.5
Truth = Callable[[Mapping[str, str]], float]
"""settings in force -> speed over no drafter"""


@dataclass(frozen=True)
class Noise:
    """Standard deviations of the logarithm of the speed."""

    trial: float
    start: float = 0.005
    drafting: float = 0.06
    """how differently prompts take to drafting"""
    setting: float = 0.02
    """how differently prompts take to one setting beside another"""
    machine: float = 0.05


class World:
    def __init__(self, space: Space, truth: Truth, noise: Noise, seed: int) -> None:
        self.space, self.truth, self.noise, self.seed = space, truth, noise, seed
        self.seconds = {tune.CHOOSE: 0.0, tune.CONFIRM: 0.0, tune.DRIFT: 0.0}
        self.lines: list[Any] = []

    def speed(self, arm: Arm) -> float:
        """The true speed over no drafter."""
        return self.truth({**self.space.settings, **arm.changes})

    def _draw(self, deviation: float, *of: str) -> float:
        """The same for the same seed and names, whatever was drawn before."""
        return random.Random(f"{self.seed} {of}").gauss(0, deviation)  # noqa: S311

    def trials(self, turn: Round, arm: Arm) -> list[Any]:
        """The journal's lines of one start of one arm."""
        lines = []
        drafts = tune.drafts({**self.space.settings, **arm.changes})
        self.seconds[turn.kind] += START_S
        for cell in sorted(turn.only or ()):
            log = math.log(BASE * self.speed(arm)) + self._draw(self.noise.machine, turn.name)
            log += self._draw(self.noise.start, turn.name, arm.name)
            log += self._draw(self.noise.trial, turn.name, arm.name, cell)
            log += self._draw(self.noise.setting, arm.name, cell)
            log += self._draw(self.noise.drafting, cell) * drafts
            seconds = TOKENS / math.exp(log)
            self.seconds[turn.kind] += seconds
            lines.append(line(turn.name, arm.name, cell, seconds))
        return lines

    def tuned(self) -> Course:
        """Tune this machine to the end."""
        while (course := tune.replay(self.space, self.lines)).todo:
            for turn, arm in course.todo:
                self.lines += self.trials(turn, arm)
        return course

    def share_of_grid(self) -> float:
        """Time taken over that of the full grid, which is confirmed in the same way."""
        rest = self.seconds[tune.CONFIRM] + self.seconds[tune.DRIFT]
        return (self.seconds[tune.CHOOSE] + rest) / (self.grid_seconds() + rest)

    def final(self, course: Course) -> float:
        """The true speed of the setting in force after the recommendation."""
        assert course.winner is not None
        return self.speed(course.winner if course.recommended else course.current)

    def best(self) -> float:
        return max(self.speed(arm) for arm in tune.grid(self.space))

    def grid_seconds(self) -> float:
        """What every setting of the full grid takes, asked every choosing prompt."""
        prompts = sum(len(cells) for cells in self.space.looks)
        return sum(
            len(self.space.looks) * START_S + prompts * TOKENS / (BASE * self.speed(arm))
            for arm in tune.grid(self.space)
        )


def line(turn: str, arm: str, cell: str, seconds: float) -> Any:
    """A journal's line."""
    sample = Reply(predicted_n=TOKENS, wall_ms=seconds * 1000).to_json()
    none = dict.fromkeys(("drafts", "drafted", "accepted", "prompt_tokens", "predicted_tokens"), 0)
    return {
        "round": turn,
        "arm": arm,
        "cell": cell,
        "start": 0.0,
        "end": seconds,
        "failed": None,
        "counters": {**none, "accepted_per_pos": [], "busy_slots": None},
        "memory_mib": None,
        "throttles": [],
        "samples": [sample],
    }
