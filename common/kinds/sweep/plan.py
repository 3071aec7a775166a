"""Sweep: many requests at once, and which batches and closed loops are measured.

`sweep` asks short prompts of exact length, `longmixed` six tasks behind documents of their own.
Both compare drafter on and off under both KV layouts, and are summarised alike. No prompt is asked
of a server twice: a drafter that remembers what was said before would know the reply.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from common.errors import RigError
from common.kinds.sweep.schema import Layout
from common.kinds.sweep.stretches import Stretches, long_enough
from common.measure.arms import rounds
from common.measure.kind import Tools
from common.measure.plan import Arm, Cell, Plan, Round
from common.measure.texts import Tokenizer, made, prompts
from common.rig import Rig
from common.serving import client

PROMPTS = Path(__file__).with_name("prompts.yaml")
LONGMIXED = Path(__file__).with_name("longmixed.yaml")

SHAPES = ((512, 128), (128, 512))  # tokens in, tokens out
LONGMIXED_OUT = 256
LONGMIXED_IN = (1000, 3500)
AT_LEAST = 4  # requests of a shape in a round, in several batches where few are sent at once
EACH = 3  # requests of each user in a closed loop: the steady part in the middle is two of them
# Each layout's own baseline is its arm without a drafter.
LAYOUTS: dict[Layout, str] = {"per-slot": "0", "shared": "1"}
OFF, ON = "none", "drafter"


@dataclass(frozen=True)
class Shape:
    """Requests of one size. `make` gives the body of one that was not asked before."""

    name: str
    need: int
    """tokens in and out, at most"""
    make: Callable[[], dict[str, Any]]


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
    turns = rounds(rig, quick)
    cells = []
    for kind in rig.sweep_prompts:
        texts = {size: _texts(kind, size, tokenizer) for size, _ in SHAPES}
        shapes = [
            Shape(f"{size}/{out}", size + out, partial(_next, texts[size], out))
            for size, out in SHAPES
        ]
        for turn in _main(turns):
            cells += _cells(rig, kind, shapes, turn.name, quick)
    return _plan("sweep", rig, cells, turns, quick, prompts=PROMPTS)


def longmixed_plan(rig: Rig, tokenizer: Tokenizer, quick: bool = False) -> Plan:
    """1 to LONGMIXED_PARALLEL requests at once, six tasks in turn, each with its own document."""
    turns = rounds(rig, quick)
    tasks = list(prompts(LONGMIXED).values())
    low, high = LONGMIXED_IN
    numbers, each = count(), _requests(rig, quick)
    source = long_enough(rig, tokenizer, sum(_length(index) for index in range(each)) + 4 * high)
    stretches = Stretches(source, tokenizer)

    def make() -> dict[str, Any]:
        number = next(numbers)
        task = tasks[number % len(tasks)]
        return _body(f"{stretches.cut(_length(number))}\n\n{task}", LONGMIXED_OUT)

    shape = Shape(f"{low}-{high}/{LONGMIXED_OUT}", high + LONGMIXED_OUT, make)
    cells = []
    for turn in _main(turns):
        cells += _cells(rig, "documents", [shape], turn.name, quick)
    return _plan("longmixed", rig, cells, turns, quick, inputs=source.about(), prompts=LONGMIXED)


def _length(number: int) -> int:
    """Tokens of a request's document: all lengths come in turn, in no order."""
    low, high = LONGMIXED_IN
    return low + (high - low) * (number * 7 % 11) // 10


def _requests(rig: Rig, quick: bool) -> int:
    """How many requests of its one shape longmixed sends to a server."""
    loops = 0 if quick or not rig.sweep_loop_s else EACH
    return sum(at_once * (_batches(at_once, quick) + loops) for at_once in _counts(rig))


def arms(rig: Rig) -> list[Arm]:
    """Without and with the rig's drafter, per-slot and shared KV cache."""
    if not rig.drafts:
        raise RigError(f"{rig.name}: nothing to compare with no drafter; set SPEC_TYPE")
    return [
        Arm(f"{name}, {layout}", {**change, "KV_UNIFIED": unified})
        for layout, unified in LAYOUTS.items()
        for name, change in ((OFF, {"SPEC_TYPE": ""}), (ON, {}))
    ]


def _main(turns: Sequence[Round]) -> list[Round]:
    return [turn for turn in turns if turn.kind != "drift"]


def _plan(
    what: str, rig: Rig, cells: list[Cell], turns: list[Round], quick: bool, **more: Any
) -> Plan:
    """Each round asks cells of its own, few at once before many and back in the next; the drift
    check the batches of the first."""
    cells.sort(key=lambda cell: int(cell.about["at_once"]))
    asked = []
    for turn in turns if not quick else _main(turns):
        drift = turn.kind == "drift"
        of = turns[0].name if drift else turn.name
        own = [cell for cell in cells if cell.about["round"] == of]
        only = frozenset(cell.name for cell in own if not (drift and cell.users))
        asked.append(dataclasses.replace(turn, only=only))
    return Plan(what, arms(rig), cells, asked, quick, mark_failures=True, **more)


def _body(text: str, tokens: int) -> dict[str, Any]:
    """A request for exactly `tokens` tokens, so that every batch is the same work in all arms."""
    return {**client.chat(text, tokens), "ignore_eos": True}


def _next(texts: Iterator[str], tokens: int) -> dict[str, Any]:
    return _body(next(texts), tokens)


def _texts(kind: str, tokens: int, tokenizer: Tokenizer) -> Iterator[str]:
    """Different prompts of exactly `tokens` tokens, without end."""
    requests = list(prompts(PROMPTS).values())
    for index in count():
        own = made(1_000_000 * tokens + index, tokens * 8)
        if kind == "repeat":  # the published study's kind: one passage over and over
            passage = own[:200]
            text = f"{index}. " + passage * (tokens * 8 // len(passage) + 1)
        else:
            text = f"{requests[index % len(requests)]}\n\n{own}"
        cut = tokenizer.cut(text, tokens)
        if cut is None:
            raise RigError(f"a prompt of {tokens} tokens could not be made")
        yield cut


def _counts(rig: Rig) -> list[int]:
    """1, 2, 4 ... requests at once, as far as slots go."""
    return [2**power for power in range((rig.parallel or 1).bit_length())]


def _batches(at_once: int, quick: bool) -> int:
    return 1 if quick else max(1, AT_LEAST // at_once)


def _cells(rig: Rig, kind: str, shapes: list[Shape], turn: str, quick: bool) -> list[Cell]:
    """The batches of every shape and the closed loops of one round, each with its own requests."""
    room = rig.ctx_size // (rig.parallel or 1)
    found = []

    def add(name: str, made_of: list[Shape], about: dict[str, Any], users: int | None) -> None:
        need = max(shape.need for shape in made_of) + 64
        reason = None
        if need > room:
            reason = f"a request needs {need} tokens, a slot has {room} (context / slots)"
        bodies = [] if reason else [shape.make() for shape in made_of]
        about = {"kind": kind, **about, "round": turn}
        loop_s = float(rig.sweep_loop_s)
        found.append(Cell(f"{kind}-{name}-{turn}", bodies, about, reason, users, loop_s))

    for at_once in _counts(rig):
        for shape in shapes:
            for number in range(_batches(at_once, quick)):
                name = f"{shape.name.replace('/', '-')}-x{at_once}-{number + 1}"
                add(name, [shape] * at_once, {"shape": shape.name, "at_once": at_once}, None)
        if not quick and rig.sweep_loop_s:
            mix = [shapes[index % len(shapes)] for index in range(EACH * at_once)]
            add(f"loop-x{at_once}", mix, {"at_once": at_once, "loop": True}, at_once)
    return found


def sweep_planned(rig: Rig, tools: Tools) -> tuple[Rig, Plan]:
    rig = sweep_base(rig)
    return rig, tools.with_tokenizer(rig, lambda counter: sweep_plan(rig, counter, tools.quick))


def longmixed_planned(rig: Rig, tools: Tools) -> tuple[Rig, Plan]:
    rig = longmixed_base(rig)
    return rig, tools.with_tokenizer(rig, lambda counter: longmixed_plan(rig, counter, tools.quick))
