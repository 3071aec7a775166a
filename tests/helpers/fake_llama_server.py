"""A llama-server of known speed and known acceptance, with faults on request.

It takes llama-server's flags. What it does is set by environment variables:
FAKE_RATE        tokens per second without drafting (default 2000)
FAKE_SPEED_UPS   speed-up at each draft length, such as 1:1.5,2:1.2 (default 1)
FAKE_FLAG_UPS    speed-up of a flag with its value, such as "-ub 256:1.3,--spec-draft-p-min 0.5:0.9"
FAKE_REFUSES     ends at start where its flags hold these two words, such as "-ub 1024"
FAKE_STALL_MS    how long every reply stands still in its middle (default 0)
FAKE_TTFT_MS     time to the first token (default 5)
FAKE_ACCEPT      tokens accepted in each draft, in turn, such as 1,0,2 (default 1,0)
FAKE_REPLIES     a JSON file of replies to give instead of words: a list of objects with
                   when       what the last message must hold (the first that fits is taken)
                   drafting   true or false: only with, or only without a drafter
                   deltas     what to stream, one token each, such as {"content": " one"}
                   logprobs   for each delta its candidates: [id, text, log-probability]
                   finish_reason   default stop
FAKE_FAULT       one of the faults below, with a number where it says N
    exit             ends at start with an error
    old-flag         ends at start as a server that does not know a flag
    die-in:N         is killed in the middle of the Nth chat request
    die-after:N      is killed after the Nth chat request
    hang:N           the Nth chat request never ends
    cut:N            the Nth chat request is cut off
    no-drafts        nothing is drafted although it was asked for
    no-timings       replies carry no timings
    usage:N          the usage of the Nth reply has a token less than its timings
    error:N          the Nth chat request gets HTTP 500
    no-metrics:N     the first /metrics after the Nth chat request gets HTTP 500
A fault is done once where FAKE_ONCE names a file: the file is made, and the fault not repeated.

Tests start hundreds of these, so it takes nothing but the standard library, which loads fast.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

Handler = Callable[[bytes, "Answer"], Awaitable[None]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--spec-type", default="")
    parser.add_argument("--spec-draft-n-max", type=int, default=0)
    return parser.parse_known_args()[0]


NAP_S = 0.0002


class Answer:
    """The answer to the one request of a connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.arrived = time.perf_counter()

    async def whole(self, body: str, kind: str = "application/json", status: int = 200) -> None:
        length = f"Content-Length: {len(body.encode())}"
        await self._send(self._head(kind, length, status) + body.encode())

    async def begin(self) -> None:
        """Head of an answer that comes in pieces."""
        await self._send(self._head("text/event-stream", "Transfer-Encoding: chunked"))

    async def piece(self, data: bytes) -> None:
        await self._send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self._send(b"0\r\n\r\n")

    def cut(self) -> None:
        self.writer.close()
        raise ConnectionResetError("cut as asked")

    def _head(self, kind: str, length: str, status: int = 200) -> bytes:
        first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
        return f"{first}\r\nContent-Type: {kind}\r\n{length}\r\nConnection: close\r\n\r\n".encode()

    async def _send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


class Fake:
    def __init__(self, options: argparse.Namespace) -> None:
        self.length = options.spec_draft_n_max if "draft-" in options.spec_type else 0
        ups = dict(
            pair.split(":") for pair in os.environ.get("FAKE_SPEED_UPS", "").split(",") if pair
        )
        self.rate = float(os.environ.get("FAKE_RATE", "2000")) * float(ups.get(str(self.length), 1))
        flags = " ".join(sys.argv[1:])
        for part in os.environ.get("FAKE_FLAG_UPS", "").split(","):
            flag, _, up = part.rpartition(":")
            self.rate *= float(up) if flag and f" {flag} " in f" {flags} " else 1
        self.ttft = float(os.environ.get("FAKE_TTFT_MS", "5")) / 1000
        self.stall = float(os.environ.get("FAKE_STALL_MS", "0")) / 1000
        self.accept = [int(part) for part in os.environ.get("FAKE_ACCEPT", "1,0").split(",")]
        replies = os.environ.get("FAKE_REPLIES")
        self.replies = json.loads(Path(replies).read_text()) if replies else []
        fault, _, number = os.environ.get("FAKE_FAULT", "").partition(":")
        once = os.environ.get("FAKE_ONCE")
        if once and fault and Path(once).exists():
            fault = ""
        self.fault, self.number, self.once = fault, int(number or 0), once
        self.working = 0
        self.requests = self.drafts = self.drafted = self.accepted = self.predicted = 0
        self.per_pos = [0] * self.length

    def faults(self, fault: str) -> bool:
        hit = self.fault == fault and (not self.number or self.requests == self.number)
        if hit and self.once:
            Path(self.once).touch()
        return hit

    def steps(self, tokens: int) -> list[int]:
        """Tokens per chunk; counts drafts as llama-server does."""
        chunks, done, turn = [1], 1, 0
        while done < tokens:
            length = min(self.length, tokens - done - 1)
            kept = min(self.accept[turn % len(self.accept)], length)
            turn += 1
            self.drafts += length > 0
            self.drafted += length
            self.accepted += kept
            for position in range(kept):
                self.per_pos[position] += 1
            chunks.append(kept + 1)
            done += kept + 1
        return chunks

    def scripted(self, body: dict[str, Any]) -> dict[str, Any] | None:
        asked = body["messages"][-1]["content"]
        for reply in self.replies:
            if reply["when"] in asked and reply.get("drafting") in (None, self.length > 0):
                return dict(reply)
        return None

    async def chat(self, content: bytes, answer: Answer) -> None:
        self.working += 1
        try:
            await self.reply(content, answer)
        finally:
            self.working -= 1

    async def reply(self, content: bytes, answer: Answer) -> None:
        arrived = answer.arrived
        body = json.loads(content)
        tokens = body.get("max_tokens", 16)
        self.requests += 1
        if self.faults("error"):
            return await answer.whole('{"error": {"message": "made up"}}', status=500)
        before = (self.drafted, self.accepted)
        script = self.scripted(body)
        if script:
            tokens = max(1, len(script["deltas"]))
        chunks = self.steps(tokens)
        deltas: list[dict[str, object]] = [{"content": " word" * count} for count in chunks]
        if script:
            chunks, deltas = [1] * len(script["deltas"]), script["deltas"]
        await answer.begin()
        await answer.piece(event({"role": "assistant", "content": None}))
        start = arrived + self.ttft
        done, first, sent = 0, 0.0, 0.0
        for index, (count, delta) in enumerate(zip(chunks, deltas, strict=True)):
            start += self.stall if index == len(chunks) // 2 else 0
            # a token is out when the step that made it is: the first at once, then one a tick
            await until(start + (done + count - 1) / self.rate)
            # noted before the write: the kernel may deliver before the write returns
            sent = time.perf_counter()
            first = first or sent
            await answer.piece(event(delta, logprobs=candidates(script, index)))
            done += count
            if done > tokens // 2:
                await self.break_down(answer)
        self.predicted += tokens
        timings = {
            "prompt_n": 10,
            "prompt_ms": self.ttft * 1000,
            "cache_n": 0,
            "predicted_n": tokens,
            "predicted_ms": (tokens - 1) / self.rate * 1000,
            "predicted_per_second": self.rate,
            # what really happened, on a busy machine later than planned
            "first_ms": (first - arrived) * 1000,
            "real_per_second": (tokens - 1) / (sent - first) if sent > first else None,
        }
        if self.drafted > before[0]:
            timings["draft_n"] = self.drafted - before[0]
            timings["draft_n_accepted"] = self.accepted - before[1]
        last = {} if self.faults("no-timings") else {"timings": timings}
        reason = script.get("finish_reason", "stop") if script else "length"
        await answer.piece(event({}, finish_reason=reason, **last))
        counted = tokens - self.faults("usage")
        usage = {"prompt_tokens": 10, "completion_tokens": counted}
        await answer.piece(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n".encode())
        await answer.piece(b"data: [DONE]\n\n")
        await answer.end()
        if self.faults("die-after"):
            os._exit(9)
        return None

    async def break_down(self, answer: Answer) -> None:
        if self.faults("die-in"):
            print("fake: dying in the middle of a request", flush=True)
            os._exit(9)
        if self.faults("hang"):
            await asyncio.sleep(3600)
        if self.faults("cut"):
            answer.cut()

    async def metrics(self, _content: bytes, answer: Answer) -> None:
        if self.faults("no-metrics"):
            self.fault = ""
            return await answer.whole("{}", status=500)
        lines = [
            f"llamacpp:spec_decode_num_drafts_total {self.drafts}",
            f"llamacpp:spec_decode_num_draft_tokens_total {self.drafted}",
            f"llamacpp:spec_decode_num_accepted_tokens_total {self.accepted}",
            f"llamacpp:tokens_predicted_total {self.predicted}",
            f"llamacpp:n_decode_total {self.predicted}",
            "llamacpp:n_busy_slots_per_decode 1",
            f"llamacpp:requests_processing {self.working}",
            "llamacpp:requests_deferred 0",
            "llamacpp:prompt_tokens_total 10",
        ]
        lines += [
            f'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} {count}'
            for i, count in enumerate(self.per_pos)
        ]
        return await answer.whole("\n".join(lines) + "\n", "text/plain")


async def tokenize(content: bytes, answer: Answer) -> None:
    """Words and the blanks between them are tokens, so some characters do not start one."""
    count = len(re.findall(r"\s+|\S+", json.loads(content)["content"]))
    await answer.whole(json.dumps({"tokens": list(range(count))}))


async def until(moment: float) -> None:
    """Sleep to within two milliseconds, then in short naps, for asyncio's timers are too coarse;
    between naps other requests have their turn."""
    early = moment - time.perf_counter() - 0.002
    if early > 0:
        await asyncio.sleep(early)
    while (left := moment - time.perf_counter()) > 0:
        time.sleep(min(left, NAP_S))
        await asyncio.sleep(0)


def candidates(script: dict[str, Any] | None, index: int) -> dict[str, Any] | None:
    """The logprobs of a delta in llama-server's form; the first candidate is the token itself."""
    rows = script["logprobs"][index] if script and "logprobs" in script else None
    if not rows:
        return None
    top = [{"id": i, "token": text, "logprob": chance} for i, text, chance in rows]
    return {"content": [{**top[0], "top_logprobs": top}]}


def event(
    delta: dict[str, object],
    finish_reason: str | None = None,
    logprobs: dict[str, Any] | None = None,
    **more: object,
) -> bytes:
    choice: dict[str, object] = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    if logprobs:
        choice["logprobs"] = logprobs
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


async def health(_content: bytes, answer: Answer) -> None:
    await answer.whole('{"status": "ok"}')


async def serve(options: argparse.Namespace, handlers: dict[str, Handler]) -> None:
    async def answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            answer = Answer(writer)
            length = re.search(r"(?i)^content-length: *(\d+)", head, re.MULTILINE)
            content = await reader.readexactly(int(length[1]) if length else 0)
            handler = handlers.get(" ".join(head.split(" ", 2)[:2]))
            if handler:
                await handler(content, answer)
            else:
                await answer.whole("{}", status=404)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away, or was cut off
        finally:
            writer.close()

    server = await asyncio.start_server(answer_one, options.host, options.port)
    await server.serve_forever()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    options = arguments()
    fake = Fake(options)
    refuses = os.environ.get("FAKE_REFUSES")
    if refuses and f" {refuses} " in f" {' '.join(sys.argv[1:])} ":
        sys.exit(f"fake: out of memory with {refuses}")
    if fake.faults("no-drafts"):
        fake.length = 0
    if fake.faults("exit"):
        sys.exit("fake: cannot load the model")
    if fake.faults("old-flag"):
        sys.exit("error: invalid argument: --spec-type")
    handlers: dict[str, Handler] = {
        "POST /v1/chat/completions": fake.chat,
        "POST /tokenize": tokenize,
        "GET /metrics": fake.metrics,
        "GET /health": health,
    }
    asyncio.run(serve(options, handlers))


if __name__ == "__main__":
    main()
