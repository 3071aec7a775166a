"""Identity: which prompts are asked to see whether the greedy text is the same."""

from pathlib import Path

from common.measure import arms
from common.measure.kind import Tools
from common.measure.plan import Cell, Plan, Round
from common.measure.texts import Tokenizer, made, prompts
from common.rig import Rig
from common.serving import client

PROMPTS = Path(__file__).with_name("prompts.yaml")

CANDIDATES = 5  # the most likely tokens that are kept for every token of the baseline
GREEDY, CONTROL = "greedy", "control"
LONG_TOKENS = 2000
LONG_CHARACTERS = 8 * LONG_TOKENS  # more than any tokenizer needs for so many tokens


def plan(rig: Rig, tokenizer: Tokenizer) -> Plan:
    """The six speed prompts and three long ones, greedy, without drafter and at every draft length;
    then no drafter once more, as the control."""
    texts = prompts(arms.short_prompts(rig))
    for seed, (name, words) in enumerate(prompts(PROMPTS).items()):
        text = tokenizer.cut(made(seed, LONG_CHARACTERS), LONG_TOKENS)
        texts[name] = f"{text}\n\n{words}"
    wanted = {"logprobs": True, "top_logprobs": CANDIDATES}
    cells = [Cell(name, [client.chat(text, arms.TOKENS, **wanted)]) for name, text in texts.items()]
    rounds = [Round(GREEDY, "greedy", arms.GREEDY), Round(CONTROL, "drift", arms.GREEDY)]
    return Plan("identity", arms.arms(rig), cells, rounds, prompts=PROMPTS)


def planned(rig: Rig, tools: Tools) -> tuple[Rig, Plan]:
    return rig, tools.with_tokenizer(rig, lambda tokenizer: plan(rig, tokenizer))
