"""Arms that several measurements have: no drafter, then draft types and lengths."""

from common.errors import RigError
from common.measure.plan import Arm
from common.measure.rows import BASELINE
from common.rig import Rig

TOKENS = 256
QUICK_TOKENS = 64
GREEDY = {"temperature": 0, "seed": 1}
SAMPLED = {"temperature": 0.8, "seed": 1}


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
