"""Client: one streamed chat request, and what was measured on it."""

import json
import math
import re
import threading
from typing import Any

from common.engines import asking
from common.serving import sse, stream
from common.serving.reading import Reading, one_line
from common.serving.reply import Reply as Reply

# The first text, which is read the moment it comes, and what ends a stream: an error in whole.
TEXT = re.compile(rb'"(?:content|reasoning_content)": ?"[^"]')
END = re.compile(
    rb'^(?:data: *(?:\[DONE\]|\{ *"error"(?! *: *null)[^\n]*\n)|error:[^\n]*\n)', re.MULTILINE
)


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
        replies.append(read(reply, answer))
    return replies


def read(reply: Reply, answer: stream.Answer) -> Reply:
    """Put what an answer says into the reply. An error the server told beats one we saw."""
    reply.wall_ms = answer.end_ms
    if answer.status not in (None, 200):
        said = one_line(answer.start(2000).decode(errors="replace"))
        reply.error = f"HTTP {answer.status}: {said or answer.error or ''}"
        return reply
    done = _take_all(reply, answer)
    if reply.error is None and not done:
        reply.error = answer.error or "the stream ended before it was done"
    elif reply.error is None and (reply.predicted_per_second is None or reply.predicted_n is None):
        reply.error = "the reply has no timings; this is not llama-server, or it is too old"
    return reply


def _take_all(reply: Reply, answer: stream.Answer) -> bool:
    """Take every event up to the first error. Returns whether the stream said it is done."""
    reading = Reading(reply)
    try:
        for ms, event in sse.values(answer.arrivals):
            if event is sse.DONE:
                reply.wall_ms = ms  # whatever else the server sends or holds open
                return True
            reading.take(event, ms)
            if reply.error is not None:
                return False
    except ValueError as error:
        reply.error = one_line(str(error))
    finally:
        reading.end()
    return False


def chat(prompt: str, tokens: int, **sampling: Any) -> dict[str, Any]:
    """The body of a chat request for at most `tokens` tokens, without the prompt cache."""
    return {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "cache_prompt": False,
        **sampling,
    }
