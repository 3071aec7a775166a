"""A server that sends what a test wrote down, and nothing else."""

import socket
import threading
import time

from common.kinds.bench_client import mock
from common.serving import client

Step = tuple[float, bytes]
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
ROLE = mock.event({"delta": {"role": "assistant", "content": None}})
WORD = mock.event({"delta": {"content": " w\u00f6rd"}})
END = mock.event(
    {"delta": {}, "finish_reason": "stop"}, timings={"predicted_n": 3, "predicted_per_second": 10.0}
)
DONE = b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"


class Scripted:
    """A server that answers its one request with these steps (seconds to wait, bytes) and closes
    after `hold_s`; with `again` it repeats the last step instead. `sent` is when each was sent, in
    seconds of time.perf_counter(); `left` is set when the client has gone before that."""

    def __init__(self, steps: list[Step], hold_s: float = 0, again: bool = False) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.steps, self.hold_s, self.again = steps, hold_s, again
        self.sent: list[float] = []
        self.request = b""
        self.left = threading.Event()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        connection, _ = self.listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while b"}" not in self.request[-2:]:
            self.request += connection.recv(1 << 20)
        try:
            for step in self.steps:
                self._send(connection, step)
            while self.again:
                self._send(connection, self.steps[-1])
            if self.hold_s:
                connection.settimeout(self.hold_s)
                connection.recv(1)
                self.left.set()
        except TimeoutError:
            pass
        except OSError:
            self.left.set()
        connection.close()
        self.listener.close()

    def _send(self, connection: socket.socket, step: Step) -> None:
        time.sleep(step[0])
        self.sent.append(time.perf_counter())
        connection.sendall(step[1])


def ask(
    steps: list[Step], limit_s: float = 20, hold_s: float = 0, again: bool = False
) -> client.Reply:
    server = Scripted(steps, hold_s, again)
    return client.ask(server.url, [client.chat("hello", 3)], limit_s)[0]


def chunked(*events: bytes) -> bytes:
    return b"".join(mock.chunk(event) for event in events)


WHOLE = CHUNKED + chunked(ROLE, WORD, WORD, WORD, END, DONE) + LAST
