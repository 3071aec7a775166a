"""Reading: a streamed reply, event by event, as OpenAI's chat API and llama-server have them.

Null is absent. What has another form than it should is an error, so that no text goes missing.
"""

import math
from typing import Any, TypeVar

import orjson

from common.engines.llamacpp.serve import TIMINGS
from common.serving.reply import Reply

T = TypeVar("T", bound="dict[str, Any] | list[Any] | str")
EVENT = {"choices", "usage", "timings", "error"}
DELTA = {"role", "content", "reasoning_content", "tool_calls"}
SHOWN = 500  # characters of what a server said


class Reading:
    """Adds events to a reply. Its texts are in the reply at the `end`."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, list[str]]] = []

    def take(self, event: Any, now_ms: float) -> None:
        """Add one event, which arrived `now_ms` after the request was sent.

        Raises ValueError if it is not as it should be.
        """
        try:  # nearly all: one piece of content and nothing else
            (choice,) = event["choices"]
            delta = choice["delta"]
            text = delta["content"]
            if (
                len(delta) == 1
                and type(text) is str
                and text
                and self.reply.pieces is None
                and choice["finish_reason"] is None
                and "timings" not in event
                and "usage" not in event
                and "error" not in event
            ):
                self._note_content(text, now_ms)
                return
        except (KeyError, TypeError, ValueError):
            pass
        self._take_any(event, now_ms)

    def end(self) -> None:
        """Put what was collected into the reply."""
        self.reply.content += "".join(self._content)
        self.reply.reasoning += "".join(self._reasoning)
        if self._calls:
            self.reply.tool_calls = [
                {"type": "function", "function": {key: "".join(call[key]) for key in call}}
                for call in self._calls
            ]

    def _take_any(self, event: Any, now_ms: float) -> None:
        event = _object(event, "event")
        if event.get("error") is not None:
            self.reply.error = f"server error: {told(event['error'])}"
            return
        if not event.keys() & EVENT:
            raise ValueError(f"an event without choices: {_shown(event)}")
        for choice in _of(event, "choices", list) or []:
            self._take_choice(_object(choice, "choice"), now_ms)
        usage = _of(event, "usage", dict) or {}
        self.reply.usage_n = _number(usage, "completion_tokens", self.reply.usage_n)
        timings = _of(event, "timings", dict) or {}
        for name in TIMINGS:
            if name in timings:
                setattr(self.reply, name, _number(timings, name))

    def _take_choice(self, choice: dict[str, Any], now_ms: float) -> None:
        if "delta" not in choice:
            raise ValueError(f"a choice without delta: {_shown(choice)}")
        delta = _of(choice, "delta", dict) or {}
        if any(delta.values()) and not delta.keys() & DELTA:
            raise ValueError(f"a delta of another form: {_shown(delta)}")
        content = _of(delta, "content", str)
        reasoning = _of(delta, "reasoning_content", str)
        calls = _of(delta, "tool_calls", list)
        if content:
            self._note_content(content, now_ms)
        elif reasoning or calls:
            self._note_text(now_ms)
        if reasoning:
            self._reasoning.append(reasoning)
        for call in calls or []:
            self._add_call(_object(call, "tool call"))
        self.reply.finish_reason = _of(choice, "finish_reason", str) or self.reply.finish_reason
        if self.reply.pieces is not None and (content or reasoning):
            self.reply.pieces.append(_piece(content or reasoning or "", choice))

    def _note_content(self, text: str, now_ms: float) -> None:
        self._note_text(now_ms)
        if self.reply.content_ms is None:
            self.reply.content_ms = now_ms
        self._content.append(text)

    def _note_text(self, now_ms: float) -> None:
        reply = self.reply
        reply.text_chunks += 1
        if reply.gaps_ms is not None and reply.last_text_ms is not None:
            reply.gaps_ms.append(round(now_ms - reply.last_text_ms, 2))
        reply.last_text_ms = now_ms
        if reply.ttft_ms is None:
            reply.ttft_ms = now_ms

    def _add_call(self, part: dict[str, Any]) -> None:
        """Put a streamed part of a tool call to the call of its index: names and arguments grow."""
        index = part.get("index")
        if type(index) is not int or not 0 <= index <= len(self._calls):
            raise ValueError(f"a tool call out of turn: {_shown(part)}")
        if index == len(self._calls):
            self._calls.append({"name": [], "arguments": []})
        function = _of(part, "function", dict) or {}
        for key, collected in self._calls[index].items():
            collected.append(_of(function, key, str) or "")


def told(error: Any) -> str:
    """What a server says of its error, in one line."""
    message = error.get("message") if isinstance(error, dict) else error
    return one_line(message if isinstance(message, str) and message else _shown(error))


def one_line(text: str) -> str:
    return " ".join(text.split())[:SHOWN]


def _piece(text: str, choice: dict[str, Any]) -> dict[str, Any]:
    """A piece of text with its candidates, most likely first: [token id, text, log-probability].

    llama-server gives no candidates for tokens it took from a draft; `top` is then None.
    """
    tokens = _of(_of(choice, "logprobs", dict) or {}, "content", list)
    last = _object(tokens[-1], "token") if tokens else {}
    top = _of(last, "top_logprobs", list)
    if top is None:
        return {"text": text, "top": None}
    rows = [_candidate(one) for one in top]
    number, _, logprob = _candidate(last)
    return {"text": text, "id": number, "logprob": logprob, "top": rows}


def _candidate(found: Any) -> list[Any]:
    one = _object(found, "candidate")
    number, text, logprob = one.get("id"), one.get("token"), one.get("logprob")
    # orjson reads neither NaN nor infinite numbers
    if type(number) is int and isinstance(text, str) and isinstance(logprob, int | float):
        return [number, text, round(logprob, 5)]
    raise ValueError(f"a candidate of another form: {_shown(one)}")


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object: {_shown(value)}")
    return value


def _of(holder: dict[str, Any], key: str, kind: type[T]) -> T | None:
    """The value of this kind; None if it is null or absent."""
    value = holder.get(key)
    if value is None or isinstance(value, kind):
        return value
    raise ValueError(f"{key} has another form: {_shown(value)}")


def _number(holder: dict[str, Any], key: str, absent: Any = None) -> Any:
    """A count or a time, which is not below 0; counts are whole."""
    value = holder.get(key)
    if value is None:
        return absent
    kinds = (int, float) if key.endswith(("_ms", "_second")) else (int,)
    if type(value) in kinds and value >= 0 and math.isfinite(value):
        return value
    raise ValueError(f"{key} is no such number: {_shown(value)}")


def _shown(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()[:200]
