"""Client: one streamed chat request, and what was measured on it."""

import dataclasses
import json
import math
import re
import threading
from dataclasses import dataclass
from typing import Any

import orjson

from common.engines import asking
from common.engines.llamacpp.serve import TIMINGS
from common.serving import stream

DISAGREES = 0.02  # client and server clocks may differ by this share before a sample is flagged
# The first text, which is read the moment it comes, and what ends a stream.
TEXT = re.compile(rb'"(?:content|reasoning_content)": ?"[^"]')
END = re.compile(rb'^data: (?:\[DONE\]|\{"error")', re.MULTILINE)


@dataclass
class Reply:
    """What came back for one request. A field that could not be measured is None, never 0.

    Times are in milliseconds on the client's clock, from just before the request was sent.
    `predicted_per_second` and the other names below `timings` are the server's own.
    """

    error: str | None = None
    content: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    ttft_ms: float | None = None
    """first chunk that carries text, reasoning or content"""
    content_ms: float | None = None
    """first chunk that carries content, which a thinking model sends later"""
    last_text_ms: float | None = None
    """last chunk that carries text; if it was read together with the event that follows it, up to
    the time of that event"""
    wall_ms: float | None = None
    sent_ms: float | None = None
    """when it was sent, after the first request was; only where users ask one after the other"""
    gaps_ms: list[float] | None = None
    """between each chunk that carries text and the next; only where the stream is read closely"""
    text_chunks: int = 0
    """never a count of tokens: a chunk may carry several, or none"""
    usage_n: int | None = None
    """output tokens as OpenAI's usage has them: the server's second word on predicted_n"""
    prompt_n: int | None = None
    prompt_ms: float | None = None
    cache_n: int | None = None
    predicted_n: int | None = None
    predicted_ms: float | None = None
    predicted_per_second: float | None = None
    draft_n: int | None = None
    draft_n_accepted: int | None = None
    tool_calls: list[dict[str, Any]] | None = None
    """as OpenAI's chat API gives them whole; None without a call"""
    pieces: list[dict[str, Any]] | None = None
    """the text as it was streamed, about a token a piece; only where the request has `logprobs`"""

    @property
    def client_per_second(self) -> float | None:
        """Tokens per second on the client's clock: the second opinion."""
        if self.predicted_n is None or self.ttft_ms is None or self.last_text_ms is None:
            return None
        if self.predicted_n < 2 or self.last_text_ms <= self.ttft_ms:
            return None
        return (self.predicted_n - 1) * 1000 / (self.last_text_ms - self.ttft_ms)

    @property
    def clocks_disagree(self) -> bool:
        """Whether client and server differ by more than 2% on the decode speed."""
        mine, theirs = self.client_per_second, self.predicted_per_second
        return bool(mine and theirs and abs(mine / theirs - 1) > DISAGREES)

    def to_json(self) -> dict[str, Any]:
        return {
            **dataclasses.asdict(self),
            "client_per_second": self.client_per_second,
            "clocks_disagree": self.clocks_disagree,
        }


def ask(
    url: str,
    bodies: list[dict[str, Any]],
    timeout_s: float,
    stop: threading.Event | None = None,
    *,
    closely: bool = False,
    users: int | None = None,
    for_s: float = math.inf,
) -> list[Reply]:
    """Send all requests at once and stream the replies, in the order of `bodies`.

    With `users` so many ask at once, and each sends the next request when its reply has ended,
    until there is none or `for_s` has passed: what was not sent by then has no reply. `closely`:
    read every chunk as it comes, for the gaps between them.

    A request that fails, or takes longer than `timeout_s`, gives a Reply with `error` set; so do
    all that have not ended once `stop` is set.
    """
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    requests = [json.dumps({**body, **streamed}).encode() for body in bodies]
    path = f"{url}/v1/chat/completions"
    answers = stream.exchange(
        path,
        requests,
        timeout_s,
        TEXT,
        END,
        asking.key(),
        stop,
        closely=closely,
        users=users,
        for_s=for_s,
    )
    replies = []
    for answer, body in zip(answers, bodies, strict=False):  # those that were sent
        reply = Reply(gaps_ms=[] if closely else None, pieces=[] if body.get("logprobs") else None)
        reply.sent_ms = None if users is None else round(answer.sent_ms, 3)
        replies.append(_read(reply, answer))
    return replies


def _read(reply: Reply, answer: stream.Answer) -> Reply:
    """Take what an answer says, event by event. An error the server told beats one we saw."""
    reply.wall_ms = answer.end_ms
    if answer.status not in (None, 200) and answer.error is None:
        reply.error = f"HTTP {answer.status}: {answer.body.decode(errors='replace')[:500]}"
        return reply
    done = _take_all(reply, answer)
    if reply.error is None and not done:
        reply.error = answer.error or "the stream ended before it was done"
    elif reply.error is None and (reply.predicted_per_second is None or reply.predicted_n is None):
        reply.error = "the reply has no timings; this is not llama-server, or it is too old"
    return reply


def _take_all(reply: Reply, answer: stream.Answer) -> bool:
    """Take every event up to the first error. Returns whether the stream said it is done."""
    rest = b""
    for arrival in answer.arrivals:
        *lines, rest = (rest + arrival.data).split(b"\n")
        for line in lines:
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                return True
            try:
                take(reply, orjson.loads(line[6:]), arrival.ms)
            except orjson.JSONDecodeError:
                reply.error = f"not JSON: {line[6:206].decode(errors='replace')!r}"
            if reply.error:
                return False
    return False


def take(reply: Reply, event: dict[str, Any], now_ms: float) -> None:
    """Add one streamed event, which arrived `now_ms` after the request was sent."""
    if "error" in event:
        reply.error = f"server error: {event['error'].get('message', event['error'])}"
        return
    for choice in event.get("choices", []):
        delta = choice.get("delta", {})
        content, reasoning = delta.get("content") or "", delta.get("reasoning_content") or ""
        calls = delta.get("tool_calls") or []
        if content or reasoning or calls:
            reply.text_chunks += 1
            if reply.gaps_ms is not None and reply.last_text_ms is not None:
                reply.gaps_ms.append(round(now_ms - reply.last_text_ms, 2))
            reply.last_text_ms = now_ms
            reply.ttft_ms = now_ms if reply.ttft_ms is None else reply.ttft_ms
        if content and reply.content_ms is None:
            reply.content_ms = now_ms
        reply.content += content
        reply.reasoning += reasoning
        reply.finish_reason = choice.get("finish_reason") or reply.finish_reason
        for call in calls:
            _add_call(reply, call)
        if reply.pieces is not None and (content or reasoning):
            reply.pieces.append(_piece(content or reasoning, choice))
    reply.usage_n = (event.get("usage") or {}).get("completion_tokens", reply.usage_n)
    timings = event.get("timings", {})
    for name in TIMINGS:
        if name in timings:
            setattr(reply, name, timings[name])


def _add_call(reply: Reply, part: dict[str, Any]) -> None:
    """Put a streamed part of a tool call to the call of its index: names and arguments grow."""
    if reply.tool_calls is None:
        reply.tool_calls = []
    while len(reply.tool_calls) <= part["index"]:
        reply.tool_calls.append({"type": "function", "function": {"name": "", "arguments": ""}})
    function = reply.tool_calls[part["index"]]["function"]
    for key in ("name", "arguments"):
        function[key] += part.get("function", {}).get(key) or ""


def _piece(text: str, choice: dict[str, Any]) -> dict[str, Any]:
    """A piece of text with its candidates, most likely first: [token id, text, log-probability].

    llama-server gives no candidates for tokens it took from a draft; `top` is then None.
    """
    tokens = (choice.get("logprobs") or {}).get("content") or []
    if not tokens:
        return {"text": text, "top": None}
    last = tokens[-1]
    top = [[c["id"], c["token"], round(c["logprob"], 5)] for c in last["top_logprobs"]]
    return {"text": text, "id": last["id"], "logprob": round(last["logprob"], 5), "top": top}


def chat(prompt: str, tokens: int, **sampling: Any) -> dict[str, Any]:
    """The body of a chat request for at most `tokens` tokens, without the prompt cache."""
    return {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "cache_prompt": False,
        **sampling,
    }
