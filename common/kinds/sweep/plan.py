"""Sweep: many requests at once, and which batches are measured.

`sweep` asks short prompts of exact length, `longmixed` six tasks behind documents of their own.
Both compare drafter on and off under both KV layouts, and are summarised alike.
"""

from pathlib import Path
from typing import Any

from common.errors import RigError
from common.kinds.sweep.schema import Layout
from common.measure.arms import GREEDY
from common.measure.kind import Tools
from common.measure.plan import Arm, Cell, Plan, Round
from common.measure.texts import Tokenizer, document, made, prompts
from common.rig import Rig
from common.serving import client

PROMPTS = Path(__file__).with_name("prompts.yaml")
LONGMIXED = Path(__file__).with_name("longmixed.yaml")

SHAPES = ((512, 128), (128, 512))  # tokens in, tokens out
VARIANTS = 3  # different sets of prompts per shape: what the interval is over
LONGMIXED_OUT = 256
LONGMIXED_IN = (1000, 3500)
# Each layout's own baseline is its arm without a drafter.
LAYOUTS: dict[Layout, str] = {"per-slot": "0", "shared": "1"}
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
        "longmixed",
        arms(rig),
        cells,
        _rounds(quick),
        quick,
        mark_failures=True,
        inputs=source.about(),
        prompts=LONGMIXED,
    )


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
    return [
        up,
        Round("descending-1", "greedy", GREEDY, descending=True),
        Round("drift", "drift", GREEDY),
    ]


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


def sweep_planned(rig: Rig, tools: Tools) -> tuple[Rig, Plan]:
    rig = sweep_base(rig)
    return rig, tools.with_tokenizer(rig, lambda counter: sweep_plan(rig, counter, tools.quick))


def longmixed_planned(rig: Rig, tools: Tools) -> tuple[Rig, Plan]:
    rig = longmixed_base(rig)
    return rig, tools.with_tokenizer(rig, lambda counter: longmixed_plan(rig, counter, tools.quick))
