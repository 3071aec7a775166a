"""Speed: which arms and cells `make speed` measures."""

from common.measure.arms import BESIDE, arms, rounds, short_cells, short_prompts
from common.measure.kind import Tools
from common.measure.plan import Plan
from common.rig import Rig


def plan(rig: Rig, quick: bool = False) -> Plan:
    """Six prompts; four greedy rounds, two at temperature 0.8, and the drift check. For a base
    model four at temperature 0.8 and two greedy ones.

    A quick plan has three prompts, 64 tokens and one round.
    """
    turns = rounds(rig, quick, 0 if quick else BESIDE)
    cells = short_cells(rig, quick)
    return Plan("speed", arms(rig), cells, turns, quick, prompts=short_prompts(rig))


def planned(rig: Rig, tools: Tools) -> tuple[Rig, Plan]:
    return rig, plan(rig, tools.quick)
