"""Cost: what drafting costs on this hardware, at acceptances that are set instead of earned.

The pair has a real model's layer sizes and random weights, so its text means nothing. llama-server
accepts drafted tokens at random (`--spec-synth-rates`); everything else happens as always. What is
measured is how dear a step of n drafted tokens is, and so from which acceptance on it pays.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from common import places
from common.engines.llamacpp import jobs
from common.errors import RigError
from common.known import chain, files
from common.measure.kind import Tools
from common.measure.plan import Arm, Cell, Plan, Round, rounds_of
from common.measure.rows import BASELINE
from common.measure.texts import prompts
from common.rig import Rig
from common.serving import client
from common.weights.random_pair import ROLES, layout_of, size_of, write_gguf
from common.weights.shapes import SHAPES

PROMPTS = Path(__file__).with_name("prompts.yaml")

LENGTHS = (1, 2, 3, 4)
TOKENS = 48
ROUNDS = 4
QUICK_CELLS = 2
TINY = "tiny"
SPARE = 2**30
"""bytes that must stay free beside the pair"""


def base(rig: Rig) -> Rig:
    """The rig with the pair of COST_SHAPE in place of its own model and drafter."""
    if rig.cost_shape is None:
        raise RigError(f"{rig.name}: set COST_SHAPE to the sizes to measure, such as e2b or tiny")
    target, drafter = names(rig.cost_shape)
    unset = (
        "MODEL_HF",
        "MODEL_HF_REVISION",
        "MODEL_PACKAGE",
        "MODEL_SHA256",
        "SPEC_DRAFT_HF",
        "SPEC_DRAFT_HF_REVISION",
        "SPEC_DRAFT_SHA256",
    )
    return rig.variant(
        {
            **dict.fromkeys(unset, ""),
            "MODEL": target,
            "SPEC_DRAFT_MODEL": drafter,
            "SPEC_TYPE": "draft-mtp",
            "SPEC_DRAFT_N_MAX": "1",
        }
    )


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
        write_gguf(path, SHAPES[shape], role, "q4_0", jobs.usable_cores(), progress)


def _missing(shape: str) -> list[str]:
    return [
        role
        for role, name in zip(ROLES, names(shape), strict=True)
        if not places.model_file(name).is_file()
    ]


def plan(rig: Rig, quick: bool = False) -> Plan:
    """No drafter, and draft lengths 1 to 4 at each of COST_ACCEPT; four short replies, in
    four rounds.

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
    rounds = [*rounds_of("greedy", count, greedy), Round("drift", "drift", greedy)]
    return Plan(
        "cost", arms, cells, rounds, quick, inputs={"shape": rig.cost_shape}, prompts=PROMPTS
    )


def planned(rig: Rig, tools: Tools) -> tuple[Rig, Plan]:
    rig = base(rig)
    shape = str(rig.cost_shape)
    missing = missing_values(shape)
    if missing:
        tools.say(f"making a pair of {shape}'s layer sizes with random weights")
    with tools.steps(missing, "value") as done:
        make(shape, done)
    return rig, plan(rig, tools.quick)
