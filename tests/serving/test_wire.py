"""Every odd thing that a server may send: read, or a failed reply with the reason."""

import json
import re
import threading
import time
from typing import Any

import pytest

from common.serving import client
from common.serving.stream import Answer, Arrival
from tests.serving.scripted import (
    CHUNKED,
    DONE,
    END,
    HEAD,
    LAST,
    ROLE,
    WORD,
    Scripted,
    ask,
    chunked,
)
from tests.serving.tries import one_of_few_tries

MARK = b"\xef\xbb\xbf"
TEXT = " w\u00f6rd"
SPLITS = (1, 2, 3, 7, 100, 10_000)


def read(body: bytes, split: int = 10_000, **asked: Any) -> client.Reply:
    """The reply that this body makes, if it comes in pieces of so many bytes, one a millisecond."""
    starts = range(0, len(body), split)
    arrivals = [Arrival(1 + at / split, body[at : at + split]) for at in starts]
    return client.read(client.Reply(**asked), Answer(200, arrivals, None, 1e6))


def event(**content: Any) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def delta(**content: Any) -> bytes:
    return event(choices=[{"index": 0, "finish_reason": None, "delta": content}])


def call(**part: Any) -> bytes:
    return delta(tool_calls=[part])


def scored(*tokens: Any) -> bytes:
    return event(choices=[{"delta": {"content": "x"}, "logprobs": {"content": list(tokens)}}])


ABSENT = {
    "choices": event(choices=None),
    "delta": event(choices=[{"delta": None}]),
    "timings": event(choices=[], timings=None),
    "a timing": event(choices=[], timings={"draft_n": None}),
    "usage": event(choices=[], usage=None),
    "tokens": event(choices=[], usage={"completion_tokens": None}),
    "error": event(choices=[], error=None),
    "texts": delta(content=None, reasoning_content=None, tool_calls=None),
    "others": delta(role="assistant", content="", refusal=None, annotations=[]),
    "an unknown beside": delta(content=None, mood="good"),
    "function": call(index=0, function=None),
    "arguments": call(index=0, function={"name": None, "arguments": None}),
    "logprobs": event(choices=[{"delta": {}, "logprobs": None}]),
    "reason": event(choices=[{"delta": {}, "finish_reason": None}]),
    "empty data": b"data:\n\n",
    "empty data with a blank": b"data: \n\n",
    "a field of its own": b"data\n\n",
    "a comment": b": ping\n\n",
    "id and retry": b"id: 1\nretry: 3000\n\n",
    "a name without data": b"event: ping\n\n",
}


@pytest.mark.parametrize("name", ABSENT)
def test_null_and_empty_are_absent(name: str) -> None:
    reply = read(ROLE + WORD + ABSENT[name] + WORD + END + DONE, pieces=[])
    assert reply.error is None
    assert (reply.content, reply.text_chunks, reply.draft_n) == (TEXT * 2, *reply_counts(name))
    assert (reply.finish_reason, reply.predicted_n, reply.usage_n) == ("stop", 3, None)


def reply_counts(name: str) -> tuple[int, None]:
    return (3 if name in ("function", "arguments") else 2), None


FORMS = {
    "no blank": WORD.replace(b"data: ", b"data:"),
    "two blanks": WORD.replace(b"data: ", b"data:  "),
    "CRLF": WORD.replace(b"\n", b"\r\n"),
    "CR": WORD.replace(b"\n", b"\r"),
    "one line end": WORD.replace(b"\n\n", b"\n"),
    "a name": b"event: message\n" + WORD,
    "a comment before": b": x\r" + WORD,
    "a mark": MARK + WORD,
    "two lines": WORD.replace(b'{"choices"', b'{\ndata: "choices"'),
    "three lines": WORD.replace(b'{"choices"', b'{\r\ndata:\r\ndata:"choices"'),
    "beside a null error": WORD.replace(b'{"choices"', b'{"error": null, "choices"'),
    "with more keys": WORD.replace(b'{"choices"', b'{"x": {"y": 1}, "choices"'),
}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", FORMS)
def test_other_legal_forms_lose_no_text(name: str, split: int) -> None:
    reply = read(FORMS[name] + WORD + FORMS[name] + END + DONE, split)
    assert reply.error is None
    assert (reply.content, reply.text_chunks) == (TEXT * 3, 3)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("done", [b"data: [DONE]", b"data:[DONE]\n", b"data:  [DONE]\r\n\r\n"])
def test_done_has_many_forms(done: bytes, split: int) -> None:
    reply = read(MARK + WORD + END + done, split)
    assert (reply.error, reply.content) == (None, TEXT)


ODD = {
    "[]": b"data: []\n\n",
    "5": b"data: 5\n\n",
    '"x"': b'data: "x"\n\n',
    "null": b"data: null\n\n",
    "true": b"data: true\n\n",
    "{}": b"data: {}\n\n",
    "choices 5": event(choices=5),
    "choices of lists": event(choices=[[]]),
    "choices of text": event(choices=["delta"]),
    "choices an object": event(choices={"delta": {"content": "x"}}),
    "a message": event(choices=[{"message": {"content": "x"}}]),
    "delta text": event(choices=[{"delta": "content"}]),
    "delta a list": event(choices=[{"delta": [["content", "x"]]}]),
    "content 5": delta(content=5),
    "content 0": delta(content=0),
    "content a list": delta(content=[{"type": "text", "text": "x"}]),
    "reasoning an object": delta(reasoning_content={}),
    "text of another name": delta(contents="x"),
    "choices of another name": event(choicez=[{"delta": {"content": "x"}}]),
    "reason 5": event(choices=[{"delta": {}, "finish_reason": 5}]),
    "tools an object": delta(tool_calls={"index": 0}),
    "tools of null": delta(tool_calls=[None]),
    "no index": call(function={"name": "f"}),
    "index null": call(index=None),
    "index -1": call(index=-1),
    "index text": call(index="0"),
    "index true": call(index=True),
    "index left out": call(index=1),
    "index of millions": call(index=3_000_000),
    "function text": call(index=0, function="f"),
    "arguments an object": call(index=0, function={"arguments": {"a": 1}}),
    "name a list": call(index=0, function={"name": ["f"]}),
    "logprobs a list": event(choices=[{"delta": {"content": "x"}, "logprobs": []}]),
    "tokens of null": scored(None),
    "candidates of numbers": scored({"id": 1, "token": "x", "logprob": -1, "top_logprobs": [1]}),
    "candidates without own": scored({"top_logprobs": []}),
    "timings a list": event(choices=[], timings=["predicted_n"]),
    "timings text": event(choices=[], timings={"predicted_n": "3"}),
    "timings half a token": event(choices=[], timings={"predicted_n": 2.5}),
    "timings below 0": event(choices=[], timings={"predicted_ms": -1}),
    "timings true": event(choices=[], timings={"cache_n": True}),
    "timings beyond": b'data: {"choices":[],"timings":{"predicted_ms":1e999}}\n\n',
    "usage 5": event(choices=[], usage=5),
    "usage text": event(choices=[], usage={"completion_tokens": "3"}),
    "deep": b"data: " + b"[" * 100_000 + b"\n\n",
    "half a letter": b'data: {"choices": [{"delta": {"content": "\xc3"}}]}\n\n',
    "half a pair": b'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}\n\n',
    "two in one line": WORD.rstrip() + WORD,
    "another field": b"dbta: " + WORD[6:],
    "no field": b"<html>\n\n",
    "JSON without a field": WORD[6:],
    "done in the middle of JSON": b'data: {"choices":\ndata: [DONE]\n\n',
}


@pytest.mark.parametrize("split", [7, 200_000])
@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_fails_with_a_reason(name: str, split: int) -> None:
    """The text before it is kept, what comes after it is not."""
    reply = read(WORD + ODD[name] + WORD + END + DONE, split, pieces=[])
    assert reply.error is not None
    assert 0 < len(reply.error) < 600
    assert "\n" not in reply.error
    assert "ended before" not in reply.error
    assert reply.content.startswith(TEXT)
    assert not reply.content.endswith(TEXT * 2)


TOLD = {
    '{"error": {"message": "full", "code": 500}}': "full",
    '{"choices": [], "error": {"message": "full"}}': "full",
    '{"error": "full"}': "full",
    '{"error": ["full"]}': '["full"]',
    '{"error": {"message": null, "code": 5}}': '{"message":null,"code":5}',
    '{"error": {}}': "{}",
    '{"error": 0}': "0",
    '{"error": "two\\nlines"}': "two lines",
}


@pytest.mark.parametrize(
    "form", ["data: {}\n\n", "data:{}\n\n", "event: error\ndata: {}\n\n", "data: {}"]
)
@pytest.mark.parametrize("said", TOLD)
def test_the_server_s_message_is_kept(said: str, form: str) -> None:
    reply = read(WORD + form.replace("{}", said).encode())
    assert (reply.error, reply.content) == (f"server error: {TOLD[said]}", TEXT)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b'error: {"message": "full"}\n\n', "full"),
        (b'error: {"error": {"message": "full"}}\n\n', "full"),
        (b"error: it is full\n\n", "it is full"),
        (b'event: error\ndata: {"message": "full"}\n\n', "full"),
        (b"event: error\ndata: it is full\n\n", "it is full"),
    ],
)
def test_events_named_error_are_errors(sent: bytes, text: str) -> None:
    assert read(WORD + sent + DONE).error == f"server error: {text}"


def test_a_token_without_candidates_has_none() -> None:
    token = {"id": 1, "token": "x", "logprob": -0.5}
    top = {**token, "top_logprobs": [{"id": 2, "token": "y", "logprob": -1}]}
    reply = read(scored(token) + scored() + scored(top) + END + DONE, pieces=[])
    assert reply.error is None
    bare: dict[str, Any] = {"text": "x", "top": None}
    whole = {"text": "x", "id": 1, "logprob": -0.5, "top": [[2, "y", -1]]}
    assert reply.pieces == [bare, bare, whole]


def test_parts_of_tool_calls_grow() -> None:
    body = call(index=0, function={"name": "f", "arguments": "{"})
    body += call(index=0, function={"arguments": '"a": 1'}) + call(
        index=0, function={"arguments": "}"}
    )
    body += delta(tool_calls=[{"index": 1, "function": {"name": "g"}}, {"index": 0}])
    reply = read(body + END + DONE, 5)
    assert reply.error is None
    assert reply.tool_calls == [
        {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"type": "function", "function": {"name": "g", "arguments": ""}},
    ]


def test_what_comes_after_done_is_nothing() -> None:
    """Nor does it move the end: the whole of it came at 1e6."""
    reply = read(WORD + END + DONE + WORD + b"data: {\n\n", 400)
    assert (reply.error, reply.content) == (None, TEXT)
    assert reply.wall_ms is not None
    assert reply.wall_ms < 1e6


SMALL = {
    "content": delta(content="a"),
    "reasoning": delta(reasoning_content="a"),
    "arguments": call(index=0, function={"arguments": "a"}),
    "nothing": event(choices=[]),
    "comments": b":\n",
}


@pytest.mark.parametrize("name", SMALL)
def test_many_small_events_cost_ten_times_what_a_tenth_costs(name: str) -> None:
    """Growing a text copies all of it for every event: a hundred times, and minutes."""

    def cost(count: int) -> float:
        body = SMALL[name] * count + END + DONE
        start = time.process_time()
        assert read(body, 64 << 10).error is None
        return time.process_time() - start

    assert one_of_few_tries(lambda: cost(200_000) < 30 * cost(20_000))


def test_one_event_in_many_pieces_is_joined_once() -> None:
    def cost(size: int) -> float:
        body = delta(content="a" * size) + END + DONE
        start = time.process_time()
        assert len(read(body, 1 << 10).content) == size
        return time.process_time() - start

    assert one_of_few_tries(lambda: cost(8_000_000) < 30 * cost(800_000))


ENDLESS = {
    "events": (CHUNKED + chunked(ROLE), chunked(WORD) * 1000),
    "one event": (CHUNKED + chunked(b'data: {"choices": ["'), chunked(b"x" * 60_000)),
    "empty lines": (HEAD + b"\r\n", b"\n" * 60_000),
    "carriage returns": (HEAD + b"\r\n", b"\r" * 60_000),
    "comments": (CHUNKED, chunked(b": ping\n\n" * 1000)),
    "bytes of a chunk each": (CHUNKED, chunked(b" ") * 10_000),
    "a header": (HEAD + b"X: ", b"x" * 60_000),
    "headers": (HEAD, b"X-Y: z\r\n" * 6000),
    "announcements": (b"HTTP/1.1 103 Early Hints\r\n\r\n", b"HTTP/1.1 103 X\r\n\r\n" * 3000),
    "an error page": (b"HTTP/1.1 500 Oh\r\n\r\n", b"<p>no</p>" * 6000),
    "a chunk's length": (CHUNKED, b"0" * 60_000),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_stream_without_end_is_cut_at_a_bound_on_bytes(name: str) -> None:
    begin, more = ENDLESS[name]
    reply = ask([(0, begin), (0, more)], limit_s=200, again=True)
    assert reply.error is not None
    assert re.match(
        r"(HTTP 103: )?no end after \d{6,8} bytes$|HTTP 500: <p>no|connection lost: ", reply.error
    )


def test_a_stream_without_end_is_cut_at_a_bound_on_time() -> None:
    reply = ask([(0, CHUNKED + chunked(ROLE)), (0.02, chunked(WORD))], limit_s=0.5, again=True)
    assert reply.error == "no end after 0.5 s"
    assert reply.content.startswith(TEXT * 2)


@pytest.mark.parametrize("name", ["Switching Protocols", "Odd"])
def test_another_protocol_is_a_failure(name: str) -> None:
    head = b"HTTP/1.1 101 %s\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" % name.encode()
    reply = ask([(0, head + b"\x81\x05hello")], hold_s=30)
    assert reply.error == "HTTP 101: "


def test_a_refusal_that_is_cut_is_told_as_far_as_it_came() -> None:
    """Also one of several lines."""
    head = b"HTTP/1.1 503 Busy\r\nContent-Length: 900\r\n\r\n"
    assert ask([(0, head + b"no slot\n is free")]).error == "HTTP 503: no slot is free"
    assert (ask([(0, head)]).error or "").startswith("HTTP 503: connection lost: ")


@pytest.mark.parametrize("status", [b"100 Continue", b"102 Processing", b"103 Early Hints"])
def test_an_announcement_is_no_answer(status: bytes) -> None:
    first = b"HTTP/1.1 %s\r\nLink: </x>\r\n\r\n" % status
    body = CHUNKED + chunked(ROLE, WORD, END, DONE) + LAST
    assert ask([(0, first), (0.05, body)]).error is None
    assert ask([(0, first + body)]).content == TEXT


LONG = b'data: {"error": {"message": "context is full", "more": "' + b"x" * 3000 + b'"}}\n\n'


@pytest.mark.parametrize("hold_s", [0, 30])
@pytest.mark.parametrize("at", [8, 20, 40, 700, len(LONG) - 6, len(LONG) - 2])
@pytest.mark.parametrize("first", [ROLE, WORD])
def test_an_error_that_comes_in_two_pieces_is_told(first: bytes, at: int, hold_s: float) -> None:
    """At once too, also where the connection is held open."""
    steps = [(0.0, CHUNKED + chunked(first)), (0.1, chunked(LONG[:at])), (0.2, chunked(LONG[at:]))]
    start = time.monotonic()
    reply = ask(steps, hold_s=hold_s)
    assert reply.error == "server error: context is full"
    assert time.monotonic() - start < 15


@pytest.mark.parametrize("at", [3, 8, 10, 12])
def test_an_end_that_comes_in_two_pieces_is_not_waited_out(at: int) -> None:
    steps = [(0.0, CHUNKED + chunked(WORD, END, DONE[:at])), (0.1, chunked(DONE[at:]))]
    start = time.monotonic()
    assert ask(steps, hold_s=30).error is None
    assert time.monotonic() - start < 15


def test_a_null_error_does_not_end_the_stream() -> None:
    odd = WORD.replace(b'{"choices"', b'{"error": null, "choices"')
    steps = [(0.0, CHUNKED + chunked(odd)), (0.2, chunked(odd)), (0.2, chunked(END, DONE) + LAST)]
    assert ask(steps).content == TEXT * 2


def test_once_it_is_stopped_the_connections_are_closed() -> None:
    server = Scripted([(0, CHUNKED + chunked(ROLE)), (0.02, chunked(WORD))], again=True)
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    (reply,) = client.ask(server.url, [client.chat("hello", 3)], 300, stop)
    assert reply.error == "cancelled"
    assert server.left.wait(60)
