"""Fitting: the largest settings of a rig whose estimated memory a card has."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from common.engines.llamacpp import memory
from common.engines.llamacpp.memory import DEFAULT_SLOTS, Load, Need
from common.errors import RigError
from common.rigs.cards import Card
from common.rigs.sizes import DRAFTER_ENCODING, Size
from common.weights.random_pair import sized
from common.weights.shapes import Shape

SPARE_MIB = 200.0
"""left free for a desktop, and for what the estimate does not see"""
CONTEXTS = (131072, 65536, 32768, 16384, 8192, 4096)
ENOUGH = 8192
"""four slots are worth having if they share at least so many tokens"""
# Contexts of make longctx and their depths; beyond the last there is room for a request.
DEPTHS: Mapping[int, str] = {
    131072: "0,4096,16384,32768,65536,120000",
    67584: "0,4096,16384,32768,65536",
    34816: "0,4096,8192,16384,32768",
    18432: "0,2048,4096,8192,16384",
    10240: "0,2048,4096,8192",
    5120: "0,1024,2048,4096",
}
SWEEP_SLOTS = (64, 32, 16, 8, 4, 2)
SWEEP_EACH = 1024
"""tokens a slot: 512 in and 128 out, or the other way round"""
LONGMIXED_SLOTS = (32, 16, 8, 4, 2)
LONGMIXED_EACH = 4096
"""tokens a slot: up to 3,500 in, 256 out"""


@dataclass(frozen=True)
class Fit:
    """Settings that fit a card. What does not fit at all is None."""

    serve: Load
    parallel: int | None
    """PARALLEL; None leaves llama-server its four slots"""
    need: Need
    """of serving"""
    longctx: Load | None
    sweep: Load | None
    longmixed: Load | None

    @property
    def depths(self) -> str:
        return DEPTHS[self.longctx.ctx_size] if self.longctx else ""


def need(size: Size, encoding: str, load: Load) -> Need:
    """What a size takes on a card, estimated from its layer sizes alone."""
    shape = size.shape
    return memory.need_of(
        memory.model_of_shape(shape, "target"),
        _weights_mib(shape, "target", encoding),
        memory.model_of_shape(shape, "drafter"),
        _weights_mib(shape, "drafter", DRAFTER_ENCODING),
        load,
    )


@cache
def _weights_mib(shape: Shape, role: str, kind: str) -> float:
    return memory.held_mib(sized(shape, role, kind))


def fit(card: Card, size: Size, encoding: str) -> Fit:
    """The settings for this card.

    Four slots that share one cache, as llama-server makes them unasked, if they get 8192 tokens;
    else a single slot. Then the longest context that fits. Raises RigError with the arithmetic if
    not even one slot of 4096 tokens does.
    """
    room = card.memory_mib - SPARE_MIB

    def fits(*loads: Load) -> bool:
        return all(need(size, encoding, load).total <= room for load in loads)

    shared = _first((Load(ctx, DEFAULT_SLOTS, True) for ctx in CONTEXTS if ctx >= ENOUGH), fits)
    serve = shared or _first((Load(ctx, 1, False) for ctx in CONTEXTS), fits)
    if serve is None:
        raise RigError(_refusal(card, size, encoding))
    return Fit(
        serve,
        None if shared else 1,
        need(size, encoding, serve),
        _first((Load(ctx, 1, False) for ctx in DEPTHS), fits),
        _slots(SWEEP_SLOTS, SWEEP_EACH, fits),
        _slots(LONGMIXED_SLOTS, LONGMIXED_EACH, fits),
    )


def _first(loads: Iterable[Load], fits: Callable[..., bool]) -> Load | None:
    return next((load for load in loads if fits(load)), None)


def _slots(counts: Iterable[int], each: int, fits: Callable[..., bool]) -> Load | None:
    """The most slots that fit in both KV layouts, which these measurements compare."""
    for count in counts:
        apart, shared = (Load(count * each, count, unified) for unified in (False, True))
        if fits(apart, shared):
            return apart
    return None


def table(found: Need, card: Card) -> list[tuple[str, float]]:
    """The arithmetic, a part a line, in MiB."""
    return [
        *found.parts(),
        ("in all", found.total),
        ("left free on purpose", SPARE_MIB),
        (f"the {card.name} has", float(card.memory_mib)),
    ]


def _refusal(card: Card, size: Size, encoding: str) -> str:
    smallest = need(size, encoding, Load(CONTEXTS[-1], 1, False))
    lines = "\n".join(f"  {part:<40} {mib:>9,.0f} MiB" for part, mib in table(smallest, card))
    short = smallest.total + SPARE_MIB - card.memory_mib
    return (
        f"Gemma 4 {size.title} in {encoding.upper()} does not fit the {card.name}: one slot of "
        f"{CONTEXTS[-1]} tokens needs {short:,.0f} MiB more than it has (an estimate)\n{lines}\n"
        "Nothing was made. Choose a smaller SIZE, another ENCODING, or a larger card"
    )
