"""Long context: which cells `make longctx` measures."""

import dataclasses
from pathlib import Path

import yaml

from common.errors import RigError
from common.measure.arms import rounds
from common.measure.kind import Tools
from common.measure.plan import Arm, Cell, Plan
from common.measure.rows import BASELINE
from common.measure.texts import Tokenizer, document
from common.rig import Rig
from common.serving import client

PROMPTS = Path(__file__).with_name("prompts.yaml")

TOKENS = 256
QUICK_TOKENS = 64
ROOM = 256  # tokens for the task and the chat template


def base(rig: Rig) -> Rig:
    """The rig with this measurement's context. Raises RigError without LONGCTX_DEPTHS."""
    if not rig.longctx_depths:
        raise RigError(f"{rig.name}: set LONGCTX_DEPTHS, the depths to measure")
    return rig.variant({"CTX_SIZE": str(rig.longctx_ctx_size or rig.ctx_size), "PARALLEL": "1"})


def plan(rig: Rig, tokenizer: Tokenizer, quick: bool = False) -> Plan:
    """Three tasks at each depth, shallow to deep, so that a server can reuse what it has read.

    A quick plan has the first, second and last depth, one round and short replies.
    """
    source = document(rig)
    depths = sorted(set(rig.longctx_depths))
    if quick:
        depths = sorted({*depths[:2], depths[-1]})
    tokens = QUICK_TOKENS if quick else TOKENS
    cells = []
    for place, depth in enumerate(depths):
        reason = _infeasible(rig, depth, tokens)
        text = None if reason else tokenizer.cut(source.text, depth)
        if text is None and reason is None:
            reason = f"the document ({source.origin}) is shorter than {depth} tokens"
        for task, words in _tasks(place).items():
            body = client.chat(f"{text}\n\n{words}" if text else words, tokens)
            # Reading the document once per server is what makes deep cells affordable.
            bodies = [] if reason else [{**body, "cache_prompt": True}]
            about = {"depth": depth, "task": task, "words": place}
            cells.append(Cell(f"{depth}-{task}", bodies, about, reason))
    # Never deep before shallow: a server may only have read what is in front of the request.
    turns = [dataclasses.replace(turn, descending=False) for turn in rounds(rig, quick)]
    return Plan(
        "longctx",
        arms(rig),
        cells,
        turns,
        quick,
        mark_failures=True,
        inputs=source.about(),
        prompts=PROMPTS,
    )


def _tasks(place: int) -> dict[str, str]:
    """The three tasks as they are asked at one of the depths, in words of their own.

    Raises RigError where there are more depths than words.
    """
    found: dict[str, list[str]] = yaml.safe_load(PROMPTS.read_text(encoding="utf-8"))
    most = min(map(len, found.values()))
    if place >= most:
        raise RigError(f"LONGCTX_DEPTHS: at most {most} depths, each has tasks of its own")
    return {task: words[place].strip() for task, words in found.items()}


def arms(rig: Rig) -> list[Arm]:
    """No drafter, and the rig's drafter at LONGCTX_N_MAX (or its own length)."""
    if not rig.drafts:
        raise RigError(f"{rig.name}: nothing to compare with no drafter; set SPEC_TYPE")
    found = [Arm(BASELINE, {"SPEC_TYPE": ""})]
    if not rig.needs_drafter:
        return [*found, Arm(str(rig.spec_type), {})]
    for length in rig.longctx_n_max or (rig.spec_draft_n_max or 1,):
        found.append(Arm(f"n={length}", {"SPEC_DRAFT_N_MAX": str(length)}))
    return found


def _infeasible(rig: Rig, depth: int, tokens: int) -> str | None:
    if depth + tokens + ROOM > rig.ctx_size:
        return f"{depth} + {tokens} tokens and the task do not fit a context of {rig.ctx_size}"
    return None


def planned(rig: Rig, tools: Tools) -> tuple[Rig, Plan]:
    rig = base(rig)
    return rig, tools.with_tokenizer(rig, lambda tokenizer: plan(rig, tokenizer, tools.quick))
