"""Speed: which arms and cells `make speed` measures."""

from common.measure.arms import GREEDY, QUICK_TOKENS, SAMPLED, TOKENS, arms
from common.measure.kind import Tools
from common.measure.plan import Cell, Plan, Round
from common.measure.texts import SIX, prompts
from common.rig import Rig
from common.serving import client


def plan(rig: Rig, quick: bool = False) -> Plan:
    """Six prompts; three greedy rounds, one at temperature 0.8, and the drift check.

    A quick plan has three prompts, 64 tokens and one greedy round.
    """
    texts = prompts(SIX)
    names = list(texts)[: 3 if quick else None]
    tokens = QUICK_TOKENS if quick else TOKENS
    cells = [Cell(name, [client.chat(texts[name], tokens)]) for name in names]
    rounds = [Round(f"greedy-{i + 1}", "greedy", GREEDY) for i in range(1 if quick else 3)]
    if not quick:
        rounds.append(Round("sampled-1", "sampled", SAMPLED))
    rounds.append(Round("drift", "drift", GREEDY))
    return Plan("speed", arms(rig), cells, rounds, quick, prompts=SIX)


def planned(rig: Rig, tools: Tools) -> tuple[Rig, Plan]:
    return rig, plan(rig, tools.quick)
