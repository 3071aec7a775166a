"""Sweep: many requests at once, which batches are measured, and what is made of them.

`sweep` asks short prompts of exact length, `longmixed` six tasks behind documents of their own.
Both compare drafter on and off under both KV layouts, and are summarised alike.
"""

import statistics
from pathlib import Path
from typing import Any

from common.errors import RigError
from common.kinds.speed.plan import GREEDY
from common.measure import rows as measure_rows
from common.measure.log import Log
from common.measure.plan import Arm, Cell, Plan, Round
from common.measure.rows import Trial, output_speed, significant
from common.measure.texts import document, made, prompts
from common.rig import Rig
from common.serving import client
from common.serving.tokenizer import Tokenizer

PROMPTS = Path(__file__).with_name("prompts.yaml")
LONGMIXED = Path(__file__).with_name("longmixed.yaml")

SHAPES = ((512, 128), (128, 512))  # tokens in, tokens out
VARIANTS = 3  # different sets of prompts per shape: what the interval is over
LONGMIXED_OUT = 256
LONGMIXED_IN = (1000, 3500)
# Each layout's own baseline is its arm without a drafter.
LAYOUTS = {"per-slot": "0", "shared": "1"}
OFF, ON = "none", "drafter"


def sweep_base(rig: Rig) -> Rig:
    """The rig with the sweep's slots and context."""
    return _base(rig, "SWEEP", rig.sweep_parallel, rig.sweep_ctx_size)


def longmixed_base(rig: Rig) -> Rig:
    """The rig with longmixed's slots and context."""
    return _base(rig, "LONGMIXED", rig.longmixed_parallel, rig.longmixed_ctx_size)


def _base(rig: Rig, prefix: str, parallel: int | None, ctx_size: int | None) -> Rig:
    if parallel is None or ctx_size is None:
        raise RigError(f"{rig.name}: set {prefix}_PARALLEL and {prefix}_CTX_SIZE")
    return rig.variant({"PARALLEL": str(parallel), "CTX_SIZE": str(ctx_size)})


def sweep_plan(rig: Rig, tokenizer: Tokenizer, quick: bool = False) -> Plan:
    """1, 2, 4 ... requests at once, two shapes, prompts of the kinds in SWEEP_PROMPTS."""
    cells = []
    for kind in rig.sweep_prompts:
        for tokens_in, tokens_out in SHAPES:
            for variant in range(1 if quick else VARIANTS):
                seed = 1000 * variant + tokens_in
                texts = _texts(kind, tokens_in, rig.parallel or 1, seed, tokenizer)
                bodies = [_body(text, tokens_out) for text in texts]
                about = {"kind": kind, "shape": f"{tokens_in}/{tokens_out}", "variant": variant}
                cells += _batches(rig, bodies, about, tokens_in + tokens_out)
    cells.sort(key=lambda cell: int(cell.about["at_once"]))
    return Plan(
        "sweep", arms(rig), cells, _rounds(quick), quick, mark_failures=True, prompts=PROMPTS
    )


def longmixed_plan(rig: Rig, tokenizer: Tokenizer, quick: bool = False) -> Plan:
    """1 to LONGMIXED_PARALLEL requests at once, six tasks in turn, each with its own document."""
    source = document(rig)
    tasks = list(prompts(LONGMIXED).items())
    low, high = LONGMIXED_IN
    cells = []
    for variant in range(1 if quick else VARIANTS):
        bodies = []
        for index in range(rig.parallel or 1):
            task, words = tasks[(index + variant) % len(tasks)]
            length = low + (high - low) * ((index * 7 + variant * 3) % 11) // 10
            start = (index + variant * (rig.parallel or 1)) * 9000 % max(1, len(source.text) // 2)
            text = tokenizer.cut(source.text[start:], length)
            if text is None:
                raise RigError(f"the document ({source.origin}) is too short for {task}")
            bodies.append(_body(f"{text}\n\n{words}", LONGMIXED_OUT))
        about = {"kind": "documents", "shape": f"{low}-{high}/{LONGMIXED_OUT}", "variant": variant}
        cells += _batches(rig, bodies, about, high + LONGMIXED_OUT)
    cells.sort(key=lambda cell: int(cell.about["at_once"]))
    return Plan(
        "longmixed", arms(rig), cells, _rounds(quick), quick,
        mark_failures=True, inputs=source.about(), prompts=LONGMIXED,
    )  # fmt: skip


def arms(rig: Rig) -> list[Arm]:
    """Without and with the rig's drafter, per-slot and shared KV cache."""
    if not rig.drafts:
        raise RigError(f"{rig.name}: nothing to compare with no drafter; set SPEC_TYPE")
    return [
        Arm(f"{name}, {layout}", {**change, "KV_UNIFIED": unified})
        for layout, unified in LAYOUTS.items()
        for name, change in ((OFF, {"SPEC_TYPE": ""}), (ON, {}))
    ]


def _rounds(quick: bool) -> list[Round]:
    up = Round("ascending-1", "greedy", GREEDY)
    if quick:
        return [up]
    return [up, Round("descending-1", "greedy", GREEDY, descending=True),
            Round("drift", "drift", GREEDY)]  # fmt: skip


def _body(text: str, tokens: int) -> dict[str, Any]:
    """A request for exactly `tokens` tokens, so that every batch is the same work in all arms."""
    return {**client.chat(text, tokens), "ignore_eos": True}


def _texts(kind: str, tokens: int, count: int, seed: int, tokenizer: Tokenizer) -> list[str]:
    """`count` different prompts of exactly `tokens` tokens each."""
    requests = list(prompts(PROMPTS).values())
    texts = []
    for index in range(count):
        own = made(seed * 100 + index, tokens * 8)
        if kind == "repeat":  # the published study's kind: one passage over and over
            passage = own[:200]
            text = f"{index}. " + passage * (tokens * 8 // len(passage) + 1)
        else:
            text = f"{requests[index % len(requests)]}\n\n{own}"
        cut = tokenizer.cut(text, tokens)
        if cut is None:
            raise RigError(f"a prompt of {tokens} tokens could not be made")
        texts.append(cut)
    return texts


def _batches(
    rig: Rig, bodies: list[dict[str, Any]], about: dict[str, Any], each: int
) -> list[Cell]:
    """The first 1, 2, 4 ... of the requests at once, as far as slots and context go."""
    cells = []
    at_once = 1
    while at_once <= (rig.parallel or 1):
        name = f"{about['kind']}-{about['shape'].replace('/', '-')}-x{at_once}-{about['variant']}"
        need = each + 64
        room = rig.ctx_size // (rig.parallel or 1)
        reason = None
        if need > room:
            reason = f"a request needs {need} tokens, a slot has {room} (context / slots)"
        chosen = [] if reason else bodies[:at_once]
        cells.append(Cell(name, chosen, {**about, "at_once": at_once}, reason))
        at_once *= 2
    return cells


def summarise(folder: Path) -> dict[str, Any]:
    """Every figure of a sweep's or longmixed's report, from the run directory alone."""
    log = Log(folder)
    greedy = log.of_kind("greedy")
    cells = log.cells.values()
    counts = sorted({cell["at_once"] for cell in cells})
    groups = sorted({(cell["kind"], cell["shape"]) for cell in cells})
    kinds = list(dict.fromkeys(cell["kind"] for cell in cells))
    rows = [
        _row(log, [t for t in greedy if _is(log, t, kind, shape, count)], arm) |
        {"kind": kind, "shape": shape, "at_once": count}
        for kind, shape in groups for count in counts for arm in log.arms
    ]  # fmt: skip
    ratios = [
        _ratios(log, [t for t in greedy if _is(log, t, kind, None, count)], kind, count)
        for kind in kinds for count in counts
    ]  # fmt: skip
    return {
        **log.head(),
        "document": log.manifest["plan"]["inputs"],
        "rows": rows,
        "ratios": ratios,
        "turns": [_turn(ratios, kind, layout) for kind in kinds for layout in LAYOUTS],
        "infeasible": log.infeasible(),
        "failed": log.failed(),
        "drift": log.drift(output_speed),
        "flags": log.flags(),
        "known_answer": log.known_answer(greedy),
        "cells_wrong": log.cells_wrong(greedy),
        "time": log.time(),
    }


def _is(log: Log, trial: Trial, kind: str, shape: str | None, at_once: int) -> bool:
    cell = log.cells[trial["cell"]]
    return bool(
        cell["kind"] == kind and cell["at_once"] == at_once and shape in (None, cell["shape"])
    )


def _row(log: Log, trials: list[Trial], arm: str) -> dict[str, Any]:
    """One arm at one shape and number of requests."""
    own = [trial for trial in trials if trial["arm"] == arm]
    samples = [sample for trial in own for sample in trial["samples"]]
    counted = [trial["counters"]["busy_slots"] for trial in own]
    busy = [value for value in counted if value is not None]
    return {
        "arm": arm,
        "tokens_per_second": measure_rows.mean_speed(measure_rows.speeds(own, speed=output_speed)),
        "repeats_spread": _spread(measure_rows.speeds(own, speed=output_speed)),
        "ttft_ms": _percentiles([s["ttft_ms"] for s in samples if s["ttft_ms"] is not None]),
        "tpot_ms": _percentiles([tpot for s in samples if (tpot := _tpot(s)) is not None]),
        "busy_slots": significant(statistics.fmean(busy)) if busy else None,
        "kept": measure_rows.kept(own),
        "memory_mib": measure_rows.memory(own, log.ready_memory(arm)),
        "trials": len(own),
    }


def _tpot(sample: dict[str, Any]) -> float | None:
    """Milliseconds per output token after the first, on the client's clock."""
    if sample["ttft_ms"] is None or sample["last_text_ms"] is None or sample["predicted_n"] < 2:
        return None
    return float((sample["last_text_ms"] - sample["ttft_ms"]) / (sample["predicted_n"] - 1))


def _percentiles(values: list[float]) -> dict[str, float | None]:
    if not values:
        return {"p50": None, "p90": None, "p99": None}
    cuts = (
        statistics.quantiles(values, n=100, method="inclusive") if len(values) > 1 else values * 99
    )
    return {f"p{p}": significant(cuts[p - 1]) for p in (50, 90, 99)}


def _spread(speeds: dict[Any, float]) -> float | None:
    """Largest over smallest speed of the same batch in different rounds, minus 1; the worst."""
    worst = None
    for cell in {cell for cell, _ in speeds}:
        own = [value for (name, _), value in speeds.items() if name == cell]
        if len(own) > 1:
            worst = max(worst or 0.0, max(own) / min(own) - 1)
    return significant(worst)


def _ratios(log: Log, trials: list[Trial], kind: str, at_once: int) -> dict[str, Any]:
    """Drafter over none in each layout, and shared over per-slot with and without drafter."""
    speeds = {arm: measure_rows.speeds(trials, arm, output_speed) for arm in log.arms}
    found: dict[str, Any] = {"kind": kind, "at_once": at_once, "drafter": {}, "sharing": {}}
    for layout in LAYOUTS:
        found["drafter"][layout] = measure_rows.speed_up(
            speeds[f"{OFF}, {layout}"], speeds[f"{ON}, {layout}"]
        )
    for name in (OFF, ON):
        found["sharing"][name] = measure_rows.speed_up(
            speeds[f"{name}, per-slot"], speeds[f"{name}, shared"]
        )
    return found


def _turn(ratios: list[dict[str, Any]], kind: str, layout: str) -> dict[str, Any]:
    """The number of requests at once from which the drafter is a loss."""
    points = [
        (float(row["at_once"]), row["drafter"][layout])
        for row in ratios
        if row["kind"] == kind and row["drafter"][layout]
    ]
    most = max((count for count, _ in points), default=None)
    return {
        "kind": kind,
        "layout": layout,
        **measure_rows.crossing(points),
        "pays_to": measure_rows.pays_to(points),
        "most": most,
    }
