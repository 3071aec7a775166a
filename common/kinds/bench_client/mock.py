"""Mock: a streaming chat server that writes every chunk on schedule, and knows when it did.

It measures clients: a reply's `prompt_ms` and `predicted_per_second` are what really happened, from
the request's arrival by the kernel's stamp to the moments just before the first and the last text
were written. It answers the requests other benchmarks make of an OpenAI server, too.
"""

import argparse
import heapq
import itertools
import json
import select
import socket
import time
from typing import Any

import httptools

from common.serving.stream import SO_TIMESTAMPNS, STAMP_SPACE, age_s

BOOK = "one two three four five six seven eight nine ten. " * 4000
READY = "ready"


class Mock:
    """Serves until the process ends. `rate` is text chunks per second and stream."""

    def __init__(self, listener: socket.socket, rate: float, ttft_s: float) -> None:
        self.listener = listener
        self.rate, self.ttft_s = rate, ttft_s
        self.log: list[dict[str, float]] = []
        """of every streamed reply: chunks, and seconds of time.perf_counter() of its first and
        last text"""
        self.due: list[tuple[float, int, Stream]] = []
        self.poll = select.epoll()
        self._turn = itertools.count()

    def run(self) -> None:
        self.listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.listener.setblocking(False)
        self.poll.register(self.listener, select.EPOLLIN)
        connections: dict[int, Connection] = {}
        while True:
            wait = self.due[0][0] - time.perf_counter() if self.due else None
            for number, _ in self.poll.poll(None if wait is None else max(0.0, wait)):
                if number == self.listener.fileno():
                    connection = Connection(self, self.listener.accept()[0])
                    connections[connection.socket.fileno()] = connection
                    self.poll.register(connection.socket, select.EPOLLIN)
                elif not connections[number].read():
                    connections.pop(number).close()
            self._write_due()

    def at(self, moment: float, stream: "Stream") -> None:
        heapq.heappush(self.due, (moment, next(self._turn), stream))

    def _write_due(self) -> None:
        now = time.perf_counter()
        while self.due and self.due[0][0] <= now:
            _moment, _, stream = heapq.heappop(self.due)
            stream.write_next()


class Connection:
    """One client; the parser calls its on_ methods."""

    def __init__(self, mock: Mock, connected: socket.socket) -> None:
        self.mock, self.socket = mock, connected
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.came = 0.0
        self.open = True
        self._parser = httptools.HttpRequestParser(self)
        self._path, self._body = b"", b""

    def read(self) -> bool:
        """Take what came; returns whether the connection goes on."""
        try:
            data, extra, _flags, _from = self.socket.recvmsg(1 << 20, STAMP_SPACE)
            self.came = time.perf_counter() - (age_s(extra) or 0.0)
            self._parser.feed_data(data)
        except (OSError, httptools.HttpParserError):
            return False
        return bool(data) and self.open

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError:
            self.open = False

    def close(self) -> None:
        self.open = False
        self.socket.close()

    def on_url(self, url: bytes) -> None:
        self._path, self._body = url, b""

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        keep = self._parser.should_keep_alive()
        answer: Any
        if self._path.endswith(b"/chat/completions"):
            body = json.loads(self._body)
            chunks = int(body.get("max_tokens") or body.get("max_completion_tokens") or 16)
            if body.get("stream"):
                Stream(self, chunks, keep)
                return
            answer = reply({"message": {"role": "assistant", "content": "ok"}}, usage=usage(1))
        elif self._path == b"/truth":
            answer = self.mock.log
        elif self._path.endswith(b"/models"):
            answer = {"object": "list", "data": [{"id": "mock", "object": "model"}]}
        else:
            answer = BOOK
        text = answer if isinstance(answer, str) else json.dumps(answer)
        self.send(head(keep, f"Content-Length: {len(text)}") + text.encode())


class Stream:
    """One streamed reply."""

    def __init__(self, connection: Connection, chunks: int, keep: bool) -> None:
        self.connection, self.chunks, self.keep = connection, chunks, keep
        self.written = 0
        self.came = connection.came
        self.first = self.last = 0.0
        self.text = chunk(event({"delta": {"content": " word"}}))
        role = chunk(event({"delta": {"role": "assistant", "content": None}}))
        kind = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked"
        connection.send(head(keep, kind) + role)
        connection.mock.at(self.came + connection.mock.ttft_s, self)

    def write_next(self) -> None:
        mock = self.connection.mock
        self.last = time.perf_counter()
        self.first = self.first or self.last
        self.connection.send(self.text)
        self.written += 1
        if not self.connection.open:
            return
        if self.written < self.chunks:
            mock.at(self.came + mock.ttft_s + self.written / mock.rate, self)
        else:
            self._finish()

    def _finish(self) -> None:
        span = self.last - self.first
        timings = {
            "prompt_n": 1,
            "prompt_ms": (self.first - self.came) * 1000,
            "predicted_n": self.chunks,
            "predicted_ms": span * 1000,
            "predicted_per_second": (self.chunks - 1) / span if span else None,
        }
        end = event({"delta": {}, "finish_reason": "length"}, timings=timings)
        tally = event(None, usage=usage(self.chunks))
        for data in (chunk(end), chunk(tally), chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"):
            self.connection.send(data)
        log = {"chunks": self.chunks, "first_s": self.first, "last_s": self.last}
        self.connection.mock.log.append(log)
        if not self.keep:
            self.connection.socket.shutdown(socket.SHUT_RDWR)


def head(keep: bool, more: str) -> bytes:
    state = "keep-alive" if keep else "close"
    return f"HTTP/1.1 200 OK\r\nConnection: {state}\r\n{more}\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def reply(choice: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    """The outline of what llama-server sends, about as long."""
    choices = [] if choice is None else [{"finish_reason": None, "index": 0, **choice}]
    return {
        "choices": choices,
        "created": 1700000000,
        "id": "chatcmpl-0123456789abcdef0123456789abcdef",
        "model": "mock",
        "system_fingerprint": "b00000-mock",
        "object": "chat.completion.chunk",
        **more,
    }


def event(choice: dict[str, Any] | None, **more: Any) -> bytes:
    return b"data: " + json.dumps(reply(choice, **more)).encode() + b"\n\n"


def usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": 1 + tokens}


def main() -> None:
    """Serve on a free loopback port, which the first line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rate", type=float, help="text chunks per second and stream")
    parser.add_argument("ttft_s", type=float, help="seconds to the first text")
    options = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(READY, listener.getsockname()[1], flush=True)
    Mock(listener, options.rate, options.ttft_s).run()


if __name__ == "__main__":
    main()
