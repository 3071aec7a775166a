"""Cost: what drafting costs on this hardware, at acceptances that are set instead of earned.

The pair has a real model's layer sizes and random weights, so its text means nothing. llama-server
accepts drafted tokens at random (`--spec-synth-rates`); everything else happens as always. What is
measured is how dear a step of n drafted tokens is, and so from which acceptance on it pays.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from common import places
from common.errors import RigError
from common.known import chain, files
from common.measure import rows, stats
from common.measure.log import Log
from common.measure.plan import Arm, Cell, Plan, Round
from common.measure.rows import BASELINE, Trial, significant
from common.measure.texts import prompts
from common.rig import Rig
from common.serving import client
from common.weights.random_pair import ROLES, layout_of, size_of, write_gguf
from common.weights.shapes import SHAPES

PROMPTS = Path(__file__).with_name("prompts.yaml")

LENGTHS = (1, 2, 3, 4)
TOKENS = 48
ROUNDS = 2
QUICK_CELLS = 2
TINY = "tiny"
SPARE = 2**30
"""bytes that must stay free beside the pair"""


def base(rig: Rig) -> Rig:
    """The rig with the pair of COST_SHAPE in place of its own model and drafter."""
    if rig.cost_shape is None:
        raise RigError(f"{rig.name}: set COST_SHAPE to the sizes to measure, such as e2b or tiny")
    target, drafter = names(rig.cost_shape)
    unset = ("MODEL_HF", "MODEL_HF_REVISION", "MODEL_PACKAGE", "MODEL_SHA256", "SPEC_DRAFT_HF",
             "SPEC_DRAFT_HF_REVISION", "SPEC_DRAFT_SHA256")  # fmt: skip
    return rig.variant({
        **dict.fromkeys(unset, ""),
        "MODEL": target,
        "SPEC_DRAFT_MODEL": drafter,
        "SPEC_TYPE": "draft-mtp",
        "SPEC_DRAFT_N_MAX": "1",
    })  # fmt: skip


def names(shape: str) -> tuple[str, str]:
    """File names of target and drafter in the models folder."""
    if shape == TINY:
        return chain.TARGET_NAME, chain.DRAFTER_NAME
    target, drafter = (f"random-{shape}-{role}-q4_0.gguf" for role in ROLES)
    return target, drafter


def missing_values(shape: str) -> int:
    """How many weights are still to be made, for a progress display."""
    if shape == TINY:
        return 0
    return sum(t.size for role in _missing(shape) for t in layout_of(SHAPES[shape], role))


def make(shape: str, progress: Callable[[int], object] = lambda _: None) -> None:
    """Make the pair where it is missing. Raises RigError if the disk has no room for it."""
    folder = places.models()
    folder.mkdir(parents=True, exist_ok=True)
    if shape == TINY:
        if not all(places.model_file(name).is_file() for name in names(shape)):
            files.write_pair(folder, chain.make_chain())
        return
    need = sum(size_of(SHAPES[shape], role, "q4_0") for role in _missing(shape))
    free = shutil.disk_usage(folder).free
    if need and free < need + SPARE:
        raise RigError(
            f"the {shape} pair needs {need / 1e9:.1f} GB and 1 GB to spare, {folder} has "
            f"{free / 1e9:.1f} GB free; make room, or set MODELS_DIR to another folder"
        )
    for role in _missing(shape):
        path = places.model_file(names(shape)[ROLES.index(role)])
        write_gguf(path, SHAPES[shape], role, "q4_0", os.cpu_count() or 1, progress)


def _missing(shape: str) -> list[str]:
    return [
        role
        for role, name in zip(ROLES, names(shape), strict=True)
        if not places.model_file(name).is_file()
    ]


def plan(rig: Rig, quick: bool = False) -> Plan:
    """No drafter, and draft lengths 1 to 4 at each of COST_ACCEPT; four short replies, twice.

    A quick plan has two replies, once. Each cell has a seed of its own for what is accepted.
    """
    texts = list(prompts(PROMPTS).items())[: QUICK_CELLS if quick else None]
    cells = [
        Cell(name, [{**client.chat(text, TOKENS), "ignore_eos": True, "seed": seed}])
        for seed, (name, text) in enumerate(texts, 1)
    ]
    arms = [Arm(BASELINE, {"SPEC_TYPE": ""})]
    for accept in rig.cost_accept:
        for length in LENGTHS:
            rates = ",".join(f"{accept**position:.6g}" for position in range(1, length + 1))
            change = {"SPEC_DRAFT_N_MAX": str(length), "SPEC_SYNTH_RATES": rates}
            arms.append(Arm(f"n={length} at {accept:g}", change))
    greedy = {"temperature": 0}
    count = 1 if quick else ROUNDS
    rounds = [Round(f"greedy-{turn}", "greedy", greedy) for turn in range(1, count + 1)]
    rounds.append(Round("drift", "drift", greedy))
    return Plan(
        "cost", arms, cells, rounds, quick, inputs={"shape": rig.cost_shape}, prompts=PROMPTS
    )


def summarise(folder: Path) -> dict[str, Any]:
    """Every figure of a cost report, from the run directory alone."""
    log = Log(folder)
    greedy = log.of_kind("greedy")
    arms = [_arm(log, name, greedy) for name in log.arms]
    lengths = sorted({arm["draft_length"] for arm in arms if arm["draft_length"]})
    return {
        **log.head(),
        "shape": log.manifest["plan"]["inputs"]["shape"],
        "arms": arms,
        "break_even": [_break_even(arms, length) for length in lengths],
        "drift": log.drift(),
        "flags": log.flags(),
        "time": log.time(),
    }


def _arm(log: Log, arm: str, greedy: list[Trial]) -> dict[str, Any]:
    changes = log.manifest["plan"]["arms"][arm]
    rates = [float(part) for part in changes.get("SPEC_SYNTH_RATES", "").split(",") if part]
    own = [trial for trial in greedy if trial["arm"] == arm]
    speeds, baseline = rows.speeds(own), rows.speeds(greedy, BASELINE)
    return {
        "arm": arm,
        "draft_length": len(rates) or None,
        "accept": rates[0] if rates else None,
        "tokens_per_second": rows.mean_speed(speeds),
        "speed_up": rows.speed_up(baseline, speeds) if rates else None,
        "kept": rows.kept(own),
        "kept_set": significant(sum(rates) / len(rates)) if rates else None,
        "step_cost": _step_cost(own, baseline) if rates else None,
        "memory_mib": rows.memory(
            [trial for trial in log.trials if trial["arm"] == arm], log.ready_memory(arm)
        ),
    }


def _step_cost(own: Sequence[Trial], baseline: dict[stats.Key, float]) -> float | None:
    """Time of one step (draft, and check them all) over the time of a token without drafter.

    A step gives its accepted tokens and one more, so a reply of N tokens, the first of which comes
    from the prompt, took N - 1 - accepted steps. What is accepted does not change a step's time, so
    this figure holds at any acceptance.
    """
    costs = []
    for trial in own:
        (sample,) = trial["samples"]
        undrafted = baseline.get((trial["cell"], trial["round"]))
        if undrafted is None:
            continue
        later = sample["predicted_n"] - 1
        per_step = later / (later - (sample["draft_n_accepted"] or 0))
        costs.append(per_step * undrafted / rows.decode_speed(trial))
    return significant(stats.geometric_mean(costs)) if costs else None


def _break_even(arms: Sequence[dict[str, Any]], length: int) -> dict[str, Any]:
    """The acceptance from which this draft length pays: between measured points, and by cost."""
    own = [arm for arm in arms if arm["draft_length"] == length and arm["speed_up"]]
    # `crossing` looks for a fall to 1, so the acceptances go by their negatives.
    fall = sorted((-arm["accept"], arm["speed_up"]) for arm in own)
    found = rows.crossing(fall)
    at, low, high = (None if x is None else -x for x in (found["at"], found["high"], found["low"]))
    why = {"holds": "below", "never": "above", None: None}[found["why"]]
    costs = [arm["step_cost"] for arm in own if arm["step_cost"]]
    cost = significant(stats.geometric_mean(costs)) if costs else None
    return {
        "draft_length": length,
        "at": at,
        "low": low,
        "high": high,
        "why": why,
        "least": min((arm["accept"] for arm in own), default=None),
        "most": max((arm["accept"] for arm in own), default=None),
        "step_cost": cost,
        "by_cost": None if cost is None else significant(acceptance_for(cost, length)),
    }


def acceptance_for(cost: float, length: int) -> float | None:
    """The acceptance p at which a step of `length` drafts that costs `cost` tokens breaks even.

    1 + p + p**2 + ... + p**length tokens come out of a step on average. 0 if it pays even when
    nothing is accepted, None if it does not pay when everything is.
    """
    if cost <= 1:
        return 0.0
    if cost > length + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        tokens = sum(middle**position for position in range(length + 1))
        low, high = (middle, high) if tokens < cost else (low, middle)
    return high
