"""Damaged streams: each becomes a reply, never an exception; a good one has the whole text.

FUZZ=20000 tries so many, FUZZ_SEED=7 others than the usual ones.
"""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.serving import client
from common.serving.stream import Answer, Arrival
from tests.serving.scripted import CHUNKED, HEAD, LAST, Scripted, chunked

DATA = Path(__file__).parent / "data"
COUNT = int(os.environ.get("FUZZ") or 500)
ON_THE_WIRE = max(30, COUNT // 100)
SEED = int(os.environ.get("FUZZ_SEED") or 14)
TOOLS = [
    {"index": 0, "function": {"name": "get", "arguments": ""}},
    {"index": 0, "function": {"arguments": '{"city": '}},
    {"index": 0, "function": {"arguments": '"Rome"}'}},
    {"index": 1, "function": {"name": "end", "arguments": "{}"}},
]
ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 7, 2**64, 0.5, 1e308, "", "x", " word", [], [None], ["x"], [[]], {},
    {"x": 1}, {"content": " word"}, {"message": "full"},
)  # fmt: skip
LINES = (
    b"", b":", b": ping", b"data:", b"data", b"data: ", b"event: error", b"event: x", b"id: 1",
    b"error: full", b"retry: 5", b"data: [DONE]", b"data: null", b"data: {", b"x", b"\xff\xfe",
    b"\r", b"\xef\xbb\xbf", b'data: {"error": "full"}', b'data: {"choices": []}',
)  # fmt: skip


def recorded(name: str) -> list[bytes]:
    """Events as the real llama-server sent them, without the empty lines between them."""
    return (DATA / f"{name}.sse").read_bytes().rstrip().split(b"\n\n")


def with_tools() -> list[bytes]:
    """The recorded stream, with tool calls before its end."""
    events = recorded("plain")
    shell = json.loads(events[1][6:])
    for part in TOOLS:
        shell["choices"][0]["delta"] = {"tool_calls": [part]}
        events.insert(-3, b"data: " + json.dumps(shell).encode())
    return events


STREAMS = {"plain": recorded("plain"), "logprobs": recorded("logprobs"), "tools": with_tools()}


def text_of(events: list[bytes]) -> str:
    """The text in all events up to the end, read in the plainest way there is."""
    found = ""
    for event in events:
        if event == b"data: [DONE]":
            break
        for choice in json.loads(event[6:])["choices"] or []:
            found += (choice["delta"] or {}).get("content") or ""
    return found


def cut(chance: random.Random, body: bytes) -> list[bytes]:
    """The body in pieces of chance: sometimes of single bytes, sometimes whole."""
    mean = chance.choice((1, 5, 60, 700, 10**6))
    pieces, at = [], 0
    while at < len(body):
        size = chance.randint(1, 2 * mean)
        pieces.append(body[at : at + size])
        at += size
    return pieces


def reply_to(pieces: list[bytes], pieces_wanted: bool) -> client.Reply:
    arrivals = [Arrival(float(number), piece) for number, piece in enumerate(pieces)]
    reply = client.Reply(pieces=[] if pieces_wanted else None, gaps_ms=[])
    found = client.read(reply, Answer(200, arrivals, None, float(len(pieces))))
    check(found)
    return found


def check(reply: client.Reply) -> None:
    """What holds for every reply, good or failed: one line of reason, and it can be written."""
    assert reply.error is None or (reply.error and "\n" not in reply.error)
    assert json.loads(json.dumps(reply.to_json(), allow_nan=False))["error"] == reply.error
    if reply.error is None:
        assert isinstance(reply.predicted_n, int)
        assert isinstance(reply.predicted_per_second, int | float)


def bytes_damaged(chance: random.Random, events: list[bytes]) -> bytes:
    """A byte or a few changed, lost or doubled anywhere; text may change, so only what holds for
    every reply is known of it."""
    out = bytearray(b"\n\n".join(events) + b"\n\n")
    for _ in range(chance.randint(1, 3)):
        at, size = chance.randrange(len(out)), chance.randint(1, 30)
        match chance.randrange(5):
            case 0:
                out[at] ^= 1 << chance.randrange(8)
            case 1:
                out[at] = chance.choice(b'"{}[]:,\\\n\r \0\xff0-')
            case 2:
                del out[at : at + size]
            case 3:
                out[at:at] = out[at : at + size]
            case _:
                del out[at:]
                out.extend(b"x")
    return bytes(out)


def spoilt(chance: random.Random, value: Any) -> Any:
    """A JSON value with one part of it something else."""
    if not value or not isinstance(value, dict | list) or chance.random() < 0.1:
        return chance.choice(ODD)
    copy = value.copy()
    place = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
    copy[place] = spoilt(chance, value[place])
    return copy


def events_damaged(chance: random.Random, events: list[bytes]) -> list[bytes]:
    """One event another, lost, doubled or moved; or one that is not the last spoilt."""
    events, at = list(events), chance.randrange(len(events) - 1)
    match chance.randrange(4):
        case 0:
            del events[at]
        case 1:
            events.insert(at, events[at])
        case 2:
            events.insert(chance.randrange(len(events)), events.pop(at))
        case _:
            value = spoilt(chance, json.loads(events[at][6:]))
            events[at] = b"data: " + json.dumps(value).encode()
    return events


def rewritten(chance: random.Random, events: list[bytes]) -> bytes:
    """The same events in another legal form, and lines between them that say nothing, or do."""
    end = chance.choice((b"\n", b"\r\n", b"\r"))
    out = chance.choice((b"", b"\xef\xbb\xbf"))
    for event in events:
        blank = chance.choice((b"", b" ", b"  "))
        data = blank + event[6:]
        if chance.random() < 0.2 and b', "' in data:
            data = data.replace(b', "', b"," + end + b'data: "', 1)
        if chance.random() < 0.05:
            out += chance.choice(LINES) + end + end
        out += b"data:" + data + end + end
    return out


def tries(count: int = COUNT) -> list[tuple[int, random.Random, str, list[bytes]]]:
    found = []
    for number in range(count):
        chance = random.Random(f"{SEED} {number}")  # noqa: S311 (the same each time)
        name = chance.choice(list(STREAMS))
        found.append((number, chance, name, STREAMS[name]))
    return found


@pytest.mark.parametrize("name", STREAMS)
def test_the_recorded_ones_are_read_however_they_are_cut(name: str) -> None:
    body = b"\n\n".join(STREAMS[name]) + b"\n\n"
    for number in range(20):
        reply = reply_to(cut(random.Random(number), body), name == "logprobs")  # noqa: S311
        assert reply.error is None
        assert reply.content == text_of(STREAMS[name])
        assert len(reply.content) > 20
        assert len(reply.tool_calls or []) == (2 if name == "tools" else 0)
        assert len(reply.pieces or []) == (reply.text_chunks if name == "logprobs" else 0)


def judge(found: list[client.Reply], well: int, failed: int) -> None:
    """Both kinds came often, else nothing was tried."""
    good = sum(reply.error is None for reply in found)
    assert good > len(found) / well
    assert len(found) - good > len(found) / failed


def test_damaged_bytes_make_a_reply() -> None:
    found = []
    for number, chance, name, events in tries():
        pieces = cut(chance, bytes_damaged(chance, events))
        try:
            found.append(reply_to(pieces, name == "logprobs"))
        except Exception as error:
            raise AssertionError(f"{SEED} {number}: {pieces}") from error
    judge(found, well=20, failed=4)


def test_a_good_reply_to_damaged_events_has_the_whole_text() -> None:
    found = []
    for number, chance, name, events in tries():
        damaged = events_damaged(chance, events)
        pieces = cut(chance, b"\n\n".join(damaged) + b"\n\n")
        try:
            reply = reply_to(pieces, name == "logprobs")
            if reply.error is None:
                assert reply.content == text_of(damaged)
        except Exception as error:
            raise AssertionError(f"{SEED} {number}: {pieces}") from error
        found.append(reply)
    judge(found, well=5, failed=20)


def test_another_form_of_the_same_events_has_the_same_text() -> None:
    found = []
    for number, chance, name, events in tries():
        pieces = cut(chance, rewritten(chance, events))
        try:
            reply = reply_to(pieces, name == "logprobs")
            if reply.error is None:
                assert reply.content == text_of(events)
        except Exception as error:
            raise AssertionError(f"{SEED} {number}: {pieces}") from error
        found.append(reply)
    judge(found, well=5, failed=20)


def framed(chance: random.Random, body: bytes) -> bytes:
    """The body as HTTP has it, in one of three ways; sometimes a byte of all that is another."""
    match chance.randrange(3):
        case 0:
            out = bytearray(CHUNKED + chunked(*cut(chance, body)) + LAST)
        case 1:
            out = bytearray(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        case _:
            out = bytearray(HEAD + b"\r\n" + body)
    if chance.random() < 0.5:
        out[chance.randrange(len(out))] = chance.randrange(256)
    return bytes(out)


def test_over_real_connections() -> None:
    """Requests one after the other, each answered by another damaged stream in pieces."""
    kinds: list[Callable[[random.Random, list[bytes]], bytes]]
    kinds = [rewritten, bytes_damaged, lambda _chance, events: b"\n\n".join(events) + b"\n\n"]
    good = 0
    for number, chance, _name, events in tries(ON_THE_WIRE):
        body = framed(chance, chance.choice(kinds)(chance, events))
        steps = [(0.0, piece) for piece in cut(chance, body)[:3000]]
        server = Scripted([*steps[:-1], (0.01, steps[-1][1])])
        try:
            (reply,) = client.ask(server.url, [client.chat("hello", 3)], 60)
            check(reply)
        except Exception as error:
            raise AssertionError(f"{SEED} {number}: {body!r}") from error
        assert (reply.wall_ms or 0) < 60_000
        good += reply.error is None
    assert 0 < good < ON_THE_WIRE
