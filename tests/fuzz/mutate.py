"""Mutations: right inputs made wrong, the same ones each time, and how many of them are tried.

FUZZ=20000 tries so many of each kind (make fuzz), FUZZ_SEED=7 others than the usual ones.
"""

import os
import random
from collections.abc import Iterator

CHUNK = 500
COUNT = max(100, int(os.environ.get("FUZZ") or 300))
if COUNT > CHUNK:  # whole chunks, so that each has enough of what is read and what is refused
    COUNT = -(-COUNT // CHUNK) * CHUNK
SEED = int(os.environ.get("FUZZ_SEED") or 14)
CHUNKS = range(0, COUNT, CHUNK)
"""where each test begins: a test tries CHUNK inputs at most, so that all cores have work"""
EDGES = (0, 1, 2, 4, 7, 9, 32, 42, 255, 1 << 16, *(
    (1 << bits) + more for bits in (31, 32, 53, 62, 63, 64) for more in (-1, 0, 1)
))  # fmt: skip


def randoms(chunk: int) -> Iterator[random.Random]:
    """One source of chance for each input of a chunk."""
    for number in range(chunk, min(chunk + CHUNK, COUNT)):
        yield random.Random(f"{SEED} {number}")  # noqa: S311 (the same each time)


def mutated(chance: random.Random, data: bytes, upto: int) -> bytes:
    """`data` with one to four changes within its first `upto` bytes."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(max(1, min(upto, len(out))))
        change = chance.choice(CHANGES)
        change(chance, out, at)
    return bytes(out)


def _bit(chance: random.Random, out: bytearray, at: int) -> None:
    if at < len(out):
        out[at] ^= 1 << chance.randrange(8)


def _number(chance: random.Random, out: bytearray, at: int) -> None:
    size = chance.choice((1, 4, 8))
    value = chance.choice(EDGES) % (1 << (8 * size))
    out[at : at + size] = value.to_bytes(size, "little")


def _noise(chance: random.Random, out: bytearray, at: int) -> None:
    size = chance.randrange(1, 16)
    out[at : at + size] = chance.randbytes(size)


def _cut(chance: random.Random, out: bytearray, at: int) -> None:
    del out[at : at + chance.randrange(1, 40)]


def _again(chance: random.Random, out: bytearray, at: int) -> None:
    out[at:at] = out[at : at + chance.randrange(1, 40)]


def _end(_chance: random.Random, out: bytearray, at: int) -> None:
    del out[at:]


CHANGES = (_bit, _bit, _number, _number, _number, _noise, _cut, _again, _end)
