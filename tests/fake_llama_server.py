"""A llama-server of known speed and known acceptance, with faults on request.

It takes llama-server's flags. What it does is set by environment variables:
FAKE_RATE        tokens per second without drafting (default 2000)
FAKE_SPEED_UPS   speed-up at each draft length, such as 1:1.5,2:1.2 (default 1)
FAKE_FLAG_UPS    speed-up of a flag with its value, such as "-ub 256:1.3,--spec-draft-p-min 0.5:0.9"
FAKE_REFUSES     ends at start where its flags hold these two words, such as "-ub 1024"
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
    error:N          the Nth chat request gets HTTP 500
A fault is done once where FAKE_ONCE names a file: the file is made, and the fault not repeated.
"""

import argparse
import asyncio
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from aiohttp import web


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--spec-type", default="")
    parser.add_argument("--spec-draft-n-max", type=int, default=0)
    return parser.parse_known_args()[0]


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
        self.accept = [int(part) for part in os.environ.get("FAKE_ACCEPT", "1,0").split(",")]
        replies = os.environ.get("FAKE_REPLIES")
        self.replies = json.loads(Path(replies).read_text()) if replies else []
        fault, _, number = os.environ.get("FAKE_FAULT", "").partition(":")
        once = os.environ.get("FAKE_ONCE")
        if once and fault and Path(once).exists():
            fault = ""
        self.fault, self.number, self.once = fault, int(number or 0), once
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

    async def chat(self, request: web.Request) -> web.StreamResponse:
        arrived = time.perf_counter()
        body = await request.json()
        tokens = body.get("max_tokens", 16)
        self.requests += 1
        if self.faults("error"):
            return web.json_response({"error": {"message": "made up"}}, status=500)
        before = (self.drafted, self.accepted)
        script = self.scripted(body)
        if script:
            tokens = max(1, len(script["deltas"]))
        chunks = self.steps(tokens)
        deltas: list[dict[str, object]] = [{"content": " word" * count} for count in chunks]
        if script:
            chunks, deltas = [1] * len(script["deltas"]), script["deltas"]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event({"role": "assistant", "content": None}))
        start = arrived + self.ttft
        done, first, sent = 0, 0.0, 0.0
        for index, (count, delta) in enumerate(zip(chunks, deltas, strict=True)):
            # a token is out when the step that made it is: the first at once, then one a tick
            await until(start + (done + count - 1) / self.rate)
            # noted before the write: the kernel may deliver before the write returns
            sent = time.perf_counter()
            first = first or sent
            await response.write(event(delta, logprobs=candidates(script, index)))
            done += count
            if done > tokens // 2:
                await self.break_down(response)
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
        await response.write(event({}, finish_reason=reason, **last))
        await response.write(b"data: [DONE]\n\n")
        if self.faults("die-after"):
            await response.write_eof()
            os._exit(9)
        return response

    async def break_down(self, response: web.StreamResponse) -> None:
        if self.faults("die-in"):
            print("fake: dying in the middle of a request", flush=True)
            os._exit(9)
        if self.faults("hang"):
            await asyncio.sleep(3600)
        if self.faults("cut"):
            transport = response._req.transport  # type: ignore[union-attr]
            assert transport is not None
            transport.close()

    async def metrics(self, _request: web.Request) -> web.Response:
        lines = [
            f"llamacpp:spec_decode_num_drafts_total {self.drafts}",
            f"llamacpp:spec_decode_num_draft_tokens_total {self.drafted}",
            f"llamacpp:spec_decode_num_accepted_tokens_total {self.accepted}",
            f"llamacpp:tokens_predicted_total {self.predicted}",
            f"llamacpp:n_decode_total {self.predicted}",
            "llamacpp:n_busy_slots_per_decode 1",
            "llamacpp:prompt_tokens_total 10",
        ]
        lines += [
            f'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} {count}'
            for i, count in enumerate(self.per_pos)
        ]
        return web.Response(text="\n".join(lines) + "\n")


async def tokenize(request: web.Request) -> web.Response:
    """Words and the blanks between them are tokens, so some characters do not start one."""
    text = (await request.json())["content"]
    return web.json_response({"tokens": list(range(len(re.findall(r"\s+|\S+", text))))})


async def until(moment: float) -> None:
    """Sleep to within a millisecond, then watch the clock: asyncio's timers are too coarse."""
    early = moment - time.perf_counter() - 0.002
    if early > 0:
        await asyncio.sleep(early)
    while time.perf_counter() < moment:
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


async def health(_request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


def main() -> None:
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
    app = web.Application()
    app.router.add_post("/v1/chat/completions", fake.chat)
    app.router.add_get("/metrics", fake.metrics)
    app.router.add_post("/tokenize", tokenize)
    app.router.add_get("/health", health)
    web.run_app(app, host=options.host, port=options.port, print=None, shutdown_timeout=0.1)


if __name__ == "__main__":
    main()
