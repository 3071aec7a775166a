"""Arms, prompts and rounds that several measurements have."""

from collections.abc import Mapping
from pathlib import Path

from common.errors import RigError
from common.measure.plan import Arm, Cell, Round, rounds_of
from common.measure.rows import BASELINE
from common.measure.texts import OPENINGS, SIX, prompts
from common.rig import Rig
from common.serving import client

TOKENS = 256
QUICK_TOKENS = 64
GREEDY = {"temperature": 0, "seed": 1}
SAMPLED = {"temperature": 0.8, "seed": 1}
SAMPLING: dict[str, Mapping[str, float]] = {"greedy": GREEDY, "sampled": SAMPLED}
ROUNDS, BESIDE = 4, 2  # of what the headline is made from, and of the other sampling; both even


def headline(rig: Rig) -> str:
    """How replies are drawn that a rig is judged by: greedy, or sampled for a base model, which
    says one sentence over and over where nothing is left to chance."""
    return "sampled" if rig.chat_template == "none" else "greedy"


def short_prompts(rig: Rig) -> Path:
    """The file of the six short prompts for a rig's model."""
    return OPENINGS if rig.chat_template == "none" else SIX


def short_cells(rig: Rig, quick: bool) -> list[Cell]:
    """A cell for each of the six short prompts; quick: three of them, with short replies."""
    texts = list(prompts(short_prompts(rig)).items())[: 3 if quick else None]
    tokens = QUICK_TOKENS if quick else TOKENS
    return [Cell(name, [client.chat(text, tokens)]) for name, text in texts]


def rounds(rig: Rig, quick: bool, beside: int = 0) -> list[Round]:
    """The headline's rounds (quick: one), `beside` rounds of the other sampling, and the drift
    check."""
    kind = headline(rig)
    (other,) = SAMPLING.keys() - {kind}
    found = rounds_of(kind, 1 if quick else ROUNDS, SAMPLING[kind])
    found += rounds_of(other, beside, SAMPLING[other])
    return [*found, Round("drift", "drift", found[0].sampling)]


def arms(rig: Rig) -> list[Arm]:
    """No drafter first, then every draft type and length that tpu.env names."""
    types = rig.speed_spec_types or ((rig.spec_type,) if rig.drafts and rig.spec_type else ())
    found = [Arm(BASELINE, {"SPEC_TYPE": ""})]
    for kind in types:
        change = {"SPEC_TYPE": kind.replace("+", ",")}
        prefix = f"{kind.replace(',', '+')} " if len(types) > 1 else ""
        if not rig.variant(change).needs_drafter:
            found.append(Arm(kind.replace(",", "+"), change))
            continue
        for length in rig.speed_n_max or (rig.spec_draft_n_max or 1,):
            found.append(Arm(f"{prefix}n={length}", {**change, "SPEC_DRAFT_N_MAX": str(length)}))
    if len(found) == 1:
        raise RigError(
            f"{rig.name}: nothing to compare with no drafter; set SPEC_TYPE and SPEC_DRAFT_MODEL, "
            "or SPEED_SPEC_TYPES"
        )
    return found
