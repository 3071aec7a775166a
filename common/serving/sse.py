"""SSE: the events of a streamed body, as the HTML standard's "server-sent events" has them.

LF, CR or CRLF ends a line; the blank after the colon is optional; an event may have several data
lines; comments, id and retry mean nothing here. Harder than the standard: a line with any other
field is an error, since what it meant to say would be lost. Softer: JSON that is whole is taken
without the empty line that ends its event, or the last line's end.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from common.serving.stream import Arrival

DONE = object()
"""stands for OpenAI's last event, [DONE]"""
MARK = b"\xef\xbb\xbf"  # a byte-order mark
IDLE = (b"", b"id", b"retry")


def values(arrivals: Sequence[Arrival]) -> Iterator[tuple[float, Any]]:
    """The JSON value of every event, or DONE, and the time in milliseconds its last byte had come.

    Raises ValueError for what is no event, but not for one that is cut where the body ends. An
    `error: ` line, or an event of that name, becomes {"error": ...}, as llama-server has it.
    """
    lines, event, ms = _Lines(), _Event(), 0.0
    for ms, data in arrivals:
        for line in lines.of(data):
            if event.fresh and line.startswith(b"data: {"):  # nearly all
                try:
                    value = orjson.loads(line[6:])
                except orjson.JSONDecodeError:
                    event.add(line)  # it may go on in another line
                else:
                    yield ms, value
            elif line or not event.fresh:
                for value in event.add(line):
                    yield ms, value
    if b":" in lines.rest:
        for value in event.add(lines.rest):
            yield ms, value


class _Lines:
    """Cuts a body into lines."""

    def __init__(self) -> None:
        self._cut: list[bytes] = []

    def of(self, data: bytes) -> list[bytes]:
        """The lines that end in what came now."""
        if b"\n" not in data and b"\r" not in data:
            self._cut.append(data)
            return []
        if self._cut:
            data = b"".join([*self._cut, data])
        lines = data.splitlines()
        # After a CR the LF that belongs to it may still come.
        end = b"\r" if data.endswith(b"\r") else b""
        self._cut = [] if data.endswith(b"\n") else [lines.pop() + end]
        return lines

    @property
    def rest(self) -> bytes:
        return b"".join(self._cut)


class _Event:
    """An event that is not, or not yet, one line of JSON."""

    def __init__(self) -> None:
        self.fresh = True
        """nothing of it has come"""
        self._name = b""
        self._data: list[bytes] = []

    def add(self, line: bytes) -> list[Any]:
        """Its value if it is whole with this line, else nothing."""
        field, _, text = line.removeprefix(MARK).partition(b":")
        text = text.strip()
        if field == b"event":
            self._name = text
        elif field == b"error":
            self._name, self._data = field, [text]
        elif field == b"data":
            self._data += [text] if text or self._data else []
        elif field not in IDLE:
            raise ValueError(f"what came is no event stream: {_shown(line)}")
        elif not line and not self._data:
            self._name = b""
        self.fresh = not (self._name or self._data)
        if not self._data or (line and len(self._data) > 1):
            return []
        return self._value(b"\n".join(self._data), last=not line)

    def _value(self, text: bytes, last: bool) -> list[Any]:
        value: Any
        try:
            value = DONE if text == b"[DONE]" else orjson.loads(text)
        except orjson.JSONDecodeError:
            if not last:
                return []
            if self._name != b"error":
                raise ValueError(f"not JSON: {_shown(text)}") from None
            value = text.decode(errors="replace")
        told = isinstance(value, dict) and "error" in value
        failed = self._name == b"error" and value is not DONE and not told
        self._name, self._data, self.fresh = b"", [], True
        return [{"error": value} if failed else value]


def _shown(text: bytes) -> str:
    return repr(text[:200].decode(errors="replace"))
