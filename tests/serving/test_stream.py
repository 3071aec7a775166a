"""The transport: when things came, what they were, and every way an answer can go wrong."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from common.rig import ROOT
from common.serving import client, stream
from common.serving.reading import Reading
from tests.serving.scripted import (
    CHUNKED,
    DONE,
    END,
    HEAD,
    LAST,
    ROLE,
    WHOLE,
    WORD,
    Scripted,
    ask,
    chunked,
)
from tests.serving.tries import one_of_few_tries


@pytest.fixture
def served() -> Iterator[Callable[[float, float], str]]:
    """Start a mock of this rate and TTFT in seconds; returns its address."""
    running: list[subprocess.Popen[str]] = []

    def start(rate: float, ttft_s: float) -> str:
        process = subprocess.Popen(
            [sys.executable, "-m", "common.kinds.bench_client.mock", str(rate), str(ttft_s)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stdout is not None
        return f"http://127.0.0.1:{process.stdout.readline().split()[1]}"

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_an_answer_may_be_split_anywhere(size: int) -> None:
    steps = [(0.0, WHOLE[i : i + size]) for i in range(0, len(WHOLE), size)]
    reply = ask(steps)
    assert reply.error is None
    assert reply.content == " w\u00f6rd" * 3
    assert (reply.text_chunks, reply.finish_reason, reply.predicted_n) == (3, "stop", 3)


def test_one_event_in_many_chunks_and_many_in_one() -> None:
    body = ROLE + WORD + WORD + WORD + END + DONE
    pieces = [body[i : i + 11] for i in range(0, len(body), 11)]
    assert ask([(0, CHUNKED + chunked(*pieces) + LAST)]).content == " w\u00f6rd" * 3
    assert ask([(0, CHUNKED + chunked(body) + LAST)]).content == " w\u00f6rd" * 3


def test_bodies_without_chunks() -> None:
    body = ROLE + WORD + WORD + WORD + END + DONE
    length = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    assert ask([(0, length + body)]).error is None
    assert ask([(0, HEAD + b"\r\n" + body)]).error is None
    assert ask([(0, HEAD + b"\r\n" + ROLE + WORD)]).error == "the stream ended before it was done"


def test_times_are_those_of_arrival_although_read_late() -> None:
    """Text comes every 50 ms, the end 100 ms after the last: the read that finds them is later."""
    text = chunked(WORD)
    steps = [(0.05, CHUNKED + chunked(ROLE)), *[(0.05, text)] * 8]

    def exact() -> bool:
        server = Scripted([*steps, (0.0, chunked(END, DONE) + LAST)])
        before = time.perf_counter()
        (reply,) = client.ask(server.url, [client.chat("hello", 8)], 20)
        assert reply.error is None
        assert reply.ttft_ms is not None
        assert reply.last_text_ms is not None
        assert reply.wall_ms is not None
        span_ms = (server.sent[8] - server.sent[1]) * 1000
        assert reply.ttft_ms <= (server.sent[2] - before) * 1000
        return abs(reply.last_text_ms - reply.ttft_ms - span_ms) < 2

    assert one_of_few_tries(exact)


def test_a_stall_does_not_move_the_last_text() -> None:
    """The kernel holds the last text, the server hangs: its time is when it came."""
    server = Scripted([(0, CHUNKED + chunked(ROLE, WORD)), (0.1, chunked(WORD))], hold_s=3)
    start = time.perf_counter()
    (reply,) = client.ask(server.url, [client.chat("hello", 8)], 1.5)
    assert reply.error == "no end after 1.5 s"
    assert reply.text_chunks == 2
    assert reply.last_text_ms is not None
    assert reply.last_text_ms < 1400
    assert reply.last_text_ms <= (time.perf_counter() - start) * 1000 - 50


def test_after_the_first_text_reads_are_few(served: Callable[[float, float], str]) -> None:
    url = served(100, 0.02)
    body = json.dumps({**client.chat("hello", 200), "stream": True}).encode()
    (answer,) = stream.exchange(f"{url}/v1/chat/completions", [body], 30, client.TEXT, client.END)
    assert answer.error is None
    assert answer.body.count(b" word") == 200
    # at most one read a tick, a full buffer now and then, and the few at both ends
    assert len(answer.arrivals) < 20
    assert answer.arrivals == sorted(answer.arrivals)


def test_without_stamps_every_chunk_is_read_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "STAMP_SPACE", 0)
    steps = [(0.0, CHUNKED), *[(0.03, chunked(WORD))] * 10, (0.0, chunked(END, DONE) + LAST)]

    def exact() -> bool:
        server = Scripted(steps)
        (reply,) = client.ask(server.url, [client.chat("hello", 10)], 20)
        assert reply.error is None
        assert reply.last_text_ms is not None
        assert reply.ttft_ms is not None
        span_ms = (server.sent[10] - server.sent[1]) * 1000
        return abs(reply.last_text_ms - reply.ttft_ms - span_ms) < 10

    assert one_of_few_tries(exact)


def test_a_server_that_keeps_the_connection_is_not_waited_for() -> None:
    whole = WHOLE.replace(b"close", b"keep-alive")
    for text in (whole, whole.removesuffix(LAST)):
        start = time.monotonic()
        assert ask([(0, text)], hold_s=30).error is None
        assert time.monotonic() - start < 15


def test_a_clock_that_is_set_does_not_bend_times(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time_ns
    for off_s in (-3600, 3600):
        monkeypatch.setattr(time, "time_ns", lambda off_s=off_s: real() + off_s * 10**9)
        reply = ask([(0, WHOLE)])
        assert reply.error is None
        assert reply.ttft_ms is not None
        assert reply.wall_ms is not None
        assert 0 <= reply.ttft_ms <= reply.wall_ms < 20_000


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "connection lost: the server closed it without an answer"),
        (CHUNKED + chunked(ROLE, WORD), "connection lost: the server closed it in the middle"),
        (CHUNKED + chunked(ROLE, WORD) + LAST, "the stream ended before it was done"),
        (b"220 mail ready\r\n", "connection lost: what came is not HTTP"),
        (CHUNKED + chunked(ROLE) + b"xyz\r\n", "connection lost: what came is not HTTP"),
        (CHUNKED + chunked(b'data: {"choices": [}\n\n') + LAST, "not JSON: '{\"choices\": [}'"),
        (CHUNKED + chunked(b"data: \xff\n\n") + LAST, "not JSON: '\ufffd'"),
        (
            CHUNKED + chunked(WORD, b'data: {"error": {"message": "too long"}}\n\n') + LAST,
            "server error: too long",
        ),
        (CHUNKED + chunked(WORD, DONE) + LAST, "the reply has no timings"),
        (
            b"HTTP/1.1 503 Busy\r\nContent-Length: 16\r\n\r\n" + b'{"error": "busy"',
            'HTTP 503: {"error": "busy"',
        ),
        (b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n", "HTTP 400: "),
    ],
)
def test_faults_have_reasons(data: bytes, error: str) -> None:
    reply = ask([(0, data)])
    assert reply.error is not None
    assert reply.error.startswith(error)


def test_an_error_event_is_not_waited_out() -> None:
    error = b'data: {"error": {"message": "context is full"}}\n\n'
    start = time.monotonic()
    reply = ask([(0, CHUNKED + chunked(ROLE, WORD)), (0.1, chunked(error))], hold_s=30)
    assert reply.error == "server error: context is full"
    assert reply.content == " w\u00f6rd"
    assert time.monotonic() - start < 15


def test_what_came_before_a_cut_is_kept() -> None:
    reply = ask([(0, CHUNKED + chunked(ROLE, WORD)), (0.1, chunked(WORD, WORD)[:-9])])
    assert reply.error is not None
    assert reply.error.startswith("connection lost")
    assert reply.content == " w\u00f6rd" * 2


def test_a_long_request_arrives_whole() -> None:
    server = Scripted([(0, WHOLE)])
    prompt = "long " * 800_000
    (reply,) = client.ask(server.url, [client.chat(prompt, 3)], 30)
    assert reply.error is None
    head, _, body = server.request.partition(b"\r\n\r\n")
    assert json.loads(body)["messages"][0]["content"] == prompt
    assert f"Content-Length: {len(body)}".encode() in head


def test_one_fault_does_not_touch_the_others(served: Callable[[float, float], str]) -> None:
    """Requests of different lengths at once come back in order, each with its own figures."""
    url = served(200, 0.02)
    lengths = [5, 60, 1, 30, 2, 90, 17, 44]
    replies = client.ask(url, [client.chat("hello", length) for length in lengths], 30)
    assert [reply.text_chunks for reply in replies] == lengths
    assert [reply.predicted_n for reply in replies] == lengths


def test_only_http_addresses() -> None:
    with pytest.raises(ValueError, match="expected http://"):
        client.ask("https://127.0.0.1:1", [client.chat("hello", 1)], 1)


def test_ctrl_c_interrupts_at_once() -> None:
    server = Scripted([(0, CHUNKED + chunked(ROLE, WORD))], hold_s=30)
    timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        client.ask(server.url, [client.chat("hello", 3)], 60)
    assert time.monotonic() - start < 15


def test_times_and_rates_of_many_streams(served: Callable[[float, float], str]) -> None:
    """What the mock says it did, in its timings, is what the client saw."""
    url = served(50, 0.05)

    def exact() -> bool:
        replies = client.ask(url, [client.chat("hello", 60) for _ in range(16)], 30)
        assert [reply.error for reply in replies] == [None] * 16
        late = max(abs((r.ttft_ms or 0) - (r.prompt_ms or 0)) for r in replies)
        mine = sum(reply.client_per_second or 0 for reply in replies)
        theirs = sum(reply.predicted_per_second or 0 for reply in replies)
        return late < 2 and abs(mine / theirs - 1) < 0.005

    assert one_of_few_tries(exact)


async def naive(url: str, body: bytes) -> int:
    """A client as one writes it first: a wake-up and a parse for each line."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body) + body
    )
    reply = client.Reply()
    reading = Reading(reply)
    async for line in reader:
        if line.startswith(b"data: {"):
            reading.take(json.loads(line[6:]), time.perf_counter())
    writer.close()
    reading.end()
    return reply.text_chunks


@pytest.mark.parametrize("streams", [1, 16])
def test_it_costs_a_third_of_a_naive_client(
    served: Callable[[float, float], str], streams: int
) -> None:
    """At a rate that is hard on us: more chunks lie ready when a client wakes up, so a naive one
    wakes less often."""
    url = served(200, 0.05)
    body = json.dumps({**client.chat("hello", 100), "stream": True}).encode()

    async def all_naive() -> list[int]:
        return await asyncio.gather(*(naive(url, body) for _ in range(streams)))

    ours, theirs = [], []
    for _ in range(3):
        start = time.process_time()
        assert asyncio.run(all_naive()) == [100] * streams
        middle = time.process_time()
        replies = client.ask(url, [client.chat("hello", 100)] * streams, 30)
        ours.append(time.process_time() - middle)
        theirs.append(middle - start)
        assert [reply.text_chunks for reply in replies] == [100] * streams
    assert min(ours) < min(theirs) / 3
