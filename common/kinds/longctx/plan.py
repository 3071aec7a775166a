"""Long context: which cells `make longctx` measures, and what is made of the samples."""

from pathlib import Path
from typing import Any

from common.errors import RigError
from common.kinds.speed.plan import GREEDY
from common.measure import rows as measure_rows
from common.measure.log import Log
from common.measure.plan import Arm, Cell, Plan, Round
from common.measure.rows import BASELINE, Trial
from common.measure.texts import document, prompts
from common.rig import Rig
from common.serving import client
from common.serving.tokenizer import Tokenizer

PROMPTS = Path(__file__).with_name("prompts.yaml")

TOKENS = 256
QUICK_TOKENS = 64
ROUNDS = 3
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
    for depth in depths:
        reason = _infeasible(rig, depth, tokens)
        text = None if reason else tokenizer.cut(source.text, depth)
        if text is None and reason is None:
            reason = f"the document ({source.origin}) is shorter than {depth} tokens"
        for task, words in prompts(PROMPTS).items():
            body = client.chat(f"{text}\n\n{words}" if text else words, tokens)
            # Reading the document once per server is what makes deep cells affordable.
            bodies = [] if reason else [{**body, "cache_prompt": True}]
            cells.append(Cell(f"{depth}-{task}", bodies, {"depth": depth, "task": task}, reason))
    rounds = [Round(f"greedy-{i + 1}", "greedy", GREEDY) for i in range(1 if quick else ROUNDS)]
    rounds.append(Round("drift", "drift", GREEDY))
    return Plan(
        "longctx",
        arms(rig),
        cells,
        rounds,
        quick,
        mark_failures=True,
        inputs=source.about(),
        prompts=PROMPTS,
    )


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


def summarise(folder: Path) -> dict[str, Any]:
    """Every figure of a long-context report, from the run directory alone."""
    log = Log(folder)
    greedy = log.of_kind("greedy")
    drafting = [arm for arm in log.arms if arm != BASELINE]
    depths = sorted({cell["depth"] for cell in log.cells.values()})
    rows = [_row(log, greedy, depth, arm) for depth in depths for arm in log.arms]
    return {
        **log.head(),
        "document": log.manifest["plan"]["inputs"],
        "rows": rows,
        "gone": [_gone(rows, arm) for arm in drafting],
        "infeasible": log.infeasible(),
        "failed": log.failed(),
        "drift": log.drift(),
        "flags": log.flags(),
        "known_answer": log.known_answer(greedy),
        "cells_wrong": log.cells_wrong(greedy),
        "time": log.time(),
    }


def _row(log: Log, greedy: list[Trial], depth: int, arm: str) -> dict[str, Any]:
    here = [trial for trial in greedy if log.cells[trial["cell"]]["depth"] == depth]
    own = [trial for trial in here if trial["arm"] == arm]
    speeds = measure_rows.speeds(own)
    up = None
    if arm != BASELINE:
        up = measure_rows.speed_up(measure_rows.speeds(here, BASELINE), speeds)
    reused = [trial["samples"][0]["cache_n"] for trial in own]
    return {
        "depth": depth,
        "arm": arm,
        "tokens_per_second": measure_rows.mean_speed(speeds),
        "speed_up": up,
        "kept": measure_rows.kept(own),
        "memory_mib": measure_rows.memory(own),
        "reused": max((count for count in reused if count is not None), default=None),
        "trials": len(own),
    }


def _gone(rows: list[dict[str, Any]], arm: str) -> dict[str, Any]:
    """The depth at which the arm's gain is gone, with its interval."""
    points = [
        (float(row["depth"]), row["speed_up"])
        for row in rows
        if row["arm"] == arm and row["speed_up"]
    ]
    deepest = max((depth for depth, _ in points), default=None)
    return {
        "arm": arm,
        **measure_rows.crossing(points),
        "pays_to": measure_rows.pays_to(points),
        "deepest": deepest,
    }
