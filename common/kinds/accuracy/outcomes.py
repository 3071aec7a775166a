"""What became of a question: one named outcome for every stored reply."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Outcome(str, Enum):
    """The names a report counts. Every reply has exactly one."""

    ANSWERED = "answered"  # there is something to score
    TRUNCATED = "truncated"  # cut off at the token limit
    EMPTY = "empty"  # neither text nor call nor reasoning
    REFUSAL = "refusal"  # declines
    THINKING_ONLY = "thinking_only"  # reasoning, and nothing after it
    INVALID_TOOL_JSON = "invalid_tool_json"  # one call, its arguments not a JSON object
    SEVERAL_CALLS = "several_calls"  # more than one call
    CALL_AS_TEXT = "call_as_text"  # the call is written into the text
    NO_CALL = "no_call"  # a call was asked for and other text came
    FAILED = "failed"  # no reply: the request ended in an error


@dataclass(frozen=True)
class StoredReply:
    """One reply as the journal keeps it; tool calls in the form of OpenAI's chat API."""

    content: str = ""
    reasoning_content: str = ""
    finish_reason: str | None = None
    tool_calls: Sequence[Mapping[str, Any]] = ()
    error: str | None = None


# How a reply that declines begins. Only the beginning counts: "I cannot" inside a solution is
# part of the solution. Who is sorry, or calls something unfortunate, must also say in the first
# sentence that something cannot be done: "Sorry, Tom pays 18" is an answer.
_CANNOT = (
    r"(?:can\s?not|can'?t|could(?:\s+not|n'?t)|won'?t|unable|not\s+able|must\s+decline"
    r"|i\s+(?:will|do)(?:\s+not|n'?t))\b"
)
_DECLINES = re.compile(
    r"^\W*(?:(?:(?:i'?\s?a?m\s+)?(?:very\s+|so\s+)?sorry\b|i\s+apologi[sz]e\b|unfortunately\b)"
    rf"(?:[^.!?\n0-9=]*\b{_CANNOT}|\W*(?:no\W*)?$)"
    r"|as\s+an?\s+(?:ai|artificial|large\s+language)\b"
    r"|i\s*(?:am|'m)\s+(?:not\s+able|unable)\b"
    r"|i\s+(?:can\s?not|can'?t|do\s+not|don'?t|will\s+not|won'?t|must\s+decline)\b(?!\s+wait\b))",
    re.IGNORECASE,
)
# A number after #### is an answer, however the reply began.
_FINAL_ANSWER = re.compile(r"####[^\n]*[0-9]")
# Marks that models put around a call: Gemma's own, those of common chat templates, fenced code.
_CALL_MARK = re.compile(
    r"<\|?/?tool_call\|?>|\[TOOL_CALLS\]|<function[=>]|```\s*tool_(?:code|call)"
)


def classify(reply: StoredReply, tool_names: Sequence[str] = ()) -> Outcome:
    """The outcome of `reply`, from nothing but what is stored.

    `tool_names` are the names a call could have been written with; none means that a text was
    asked for, and tool calls are then no answer. Where several names would fit, the first of these
    wins: failed, thinking_only, truncated, several_calls, invalid_tool_json, empty, refusal,
    call_as_text, no_call. Thinking that ran into the token limit is thinking_only, because that is
    the cause and the limit the effect.
    """
    calls = reply.tool_calls if tool_names else ()
    text = reply.content.strip()
    if reply.error is not None:
        return Outcome.FAILED
    if not text and not calls and reply.reasoning_content.strip():
        return Outcome.THINKING_ONLY
    if reply.finish_reason == "length":
        return Outcome.TRUNCATED
    if calls:
        return _classify_calls(calls)
    if not text:
        return Outcome.EMPTY
    if _DECLINES.search(text.replace("\u2019", "'")) and not _FINAL_ANSWER.search(text):
        return Outcome.REFUSAL
    if not tool_names:
        return Outcome.ANSWERED
    return Outcome.CALL_AS_TEXT if _writes_a_call(text, tool_names) else Outcome.NO_CALL


def read_arguments(call: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of one tool call; None where they are not a JSON object."""
    try:
        arguments = json.loads(call["function"]["arguments"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


def _classify_calls(calls: Sequence[Mapping[str, Any]]) -> Outcome:
    if len(calls) > 1:
        return Outcome.SEVERAL_CALLS
    if read_arguments(calls[0]) is None:
        return Outcome.INVALID_TOOL_JSON
    return Outcome.ANSWERED


def _writes_a_call(text: str, tool_names: Sequence[str]) -> bool:
    """Whether the text holds a call mark, `name(`, `name{` or `"name": "<a tool>"`."""
    names = "|".join(re.escape(name) for name in tool_names)
    written = rf"(?<![\w.])(?:{names})\s*[({{]|[\"']name[\"']\s*:\s*[\"'](?:{names})[\"']"
    return bool(_CALL_MARK.search(text) or re.search(written, text))
