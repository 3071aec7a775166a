"""Reply: what came back for one request, and what was measured on it."""

import dataclasses
from dataclasses import dataclass
from typing import Any

DISAGREES = 0.02  # client and server clocks may differ by this share before a sample is flagged


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
