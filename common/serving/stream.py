"""Stream: requests sent at once, one connection each, and when every piece of the answers came.

Waking up for a chunk costs more than everything done with it. So a connection is read chunk by
chunk only until the caller's `first` pattern has come; from then on the kernel collects, and the
connection is read when it closes, when a lot has come, or every TICK_S. Arrivals stay exact all
the same: with each read the kernel tells when the last segment in it came in (SO_TIMESTAMPNS).
Where it does not tell, or the server keeps the connection open, every chunk is read as it comes.
"""

import math
import re
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

TICK_S = 2.0  # a server that neither closes as it promised nor sends much is looked at this often
COLLECT_BYTES = 32 << 10  # this much wakes us; the kernel's own buffer is a few times larger
READ_BYTES = 64 << 10
# An answer without end must not fill the memory. No measurement asks for a tenth of it.
LIMIT_BYTES = 32 << 20
HEAD_BYTES = 256 << 10
LINE_BYTES = 1 << 10  # of a line whose end is yet to come: enough to tell which it is
SO_TIMESTAMPNS = 35  # <asm-generic/socket.h>; Python has no name for it
TIMESPEC = struct.Struct("@ll")
STAMP_SPACE = socket.CMSG_SPACE(TIMESPEC.size)


class Arrival(NamedTuple):
    """A piece of a body. `ms` after the request was sent its last byte had come; bytes before it
    came at or before that, and after the arrival before."""

    ms: float
    data: bytes


@dataclass
class Answer:
    """What came back for one request."""

    status: int | None = None
    arrivals: list[Arrival] = field(default_factory=list)
    error: str | None = None
    """why the body is not whole; None if it ended as HTTP says, or with the `last` pattern"""
    end_ms: float = 0.0
    """when the last of it came, or when it failed"""
    sent_ms: float = 0.0
    """when it was sent, after the first of all was"""

    @property
    def body(self) -> bytes:
        return b"".join(arrival.data for arrival in self.arrivals)

    def start(self, size: int) -> bytes:
        """The first bytes of the body."""
        return b"".join(arrival.data[:size] for arrival in self.arrivals[:size])[:size]


def age_s(extra: list[tuple[int, int, bytes]]) -> float | None:
    """How long ago, in seconds, what recvmsg returned with this came in. None: not told."""
    for level, kind, value in extra:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = TIMESPEC.unpack(value)
            return (time.time_ns() - int(seconds) * 10**9 - int(nanoseconds)) / 1e9
    return None


def exchange(
    url: str,
    bodies: Sequence[bytes],
    timeout_s: float,
    first: re.Pattern[bytes],
    last: re.Pattern[bytes],
    key: str | None = None,
    stop: threading.Event | None = None,
    *,
    closely: bool = False,
    users: int | None = None,
    for_s: float = math.inf,
) -> list[Answer]:
    """POST every JSON body to an http:// address at once; the answers in the order of `bodies`.

    `key` is sent as a bearer token. Once `stop` is set, the connections are closed within a tick,
    so that the server works no longer for nobody. With `users`, so many are sent at once, and
    whenever an answer is over the next one, until there is none or `for_s` has passed; answers are
    of those sent.

    All connections of the first are open before the first request is sent. An answer is over when
    its body is, when `last` is found in one of its last lines, when LIMIT_BYTES of it have come, or
    `timeout_s` after it was sent. Never raises for a server's fault.
    """
    deadline = time.perf_counter() + timeout_s
    posts = [_Post(url, body, timeout_s, first, last, key, closely) for body in bodies]
    begun, later = posts[:users], deque(posts[len(posts) if users is None else users :])
    try:
        for post in begun:
            post.connect(deadline - time.perf_counter())
        for post in begun:
            post.send()
        waiting = [post for post in begun if not post.over]
        _collect(waiting, later, time.perf_counter() + for_s, stop or threading.Event())
    finally:
        for post in posts:
            post.close()
    sent = posts[: len(posts) - len(later)]
    for post in sent:
        post.answer.sent_ms = (post.start - sent[0].start) * 1000
    return [post.answer for post in sent]


def _next(later: deque["_Post"], until: float) -> "_Post | None":
    """Send the next request that can be sent; None if there is none, or it is too late."""
    while later and time.perf_counter() < until:
        post = later.popleft()
        post.connect(post.timeout_s)
        post.send()
        if not post.over:
            return post
    return None


def _collect(
    posts: list["_Post"], later: deque["_Post"], until: float, stop: threading.Event
) -> None:
    """Read until every answer is over, or nobody wants them any more; after each the next of those
    `later` is sent."""
    with select.epoll() as poll:
        for post in posts:
            poll.register(post.fileno, post.interest)
        waiting = {post.fileno: post for post in posts}
        due = 0.0
        while waiting:
            if stop.is_set():
                for post in waiting.values():
                    post.cancel()
                return
            now = time.perf_counter()
            if now >= due:
                for post in waiting.values():
                    post.look(now)
                due = min([now + TICK_S, *(post.deadline for post in waiting.values())])
                changed = list(waiting.values())
            else:
                changed = [waiting[number] for number, _ in poll.poll(due - now)]
                for post in changed:
                    post.proceed(poll)
            for post in changed:
                if not post.over:
                    continue
                del waiting[post.fileno]
                poll.unregister(post.fileno)
                if fresh := _next(later, until):
                    poll.register(fresh.fileno, fresh.interest)
                    waiting[fresh.fileno] = fresh
                    due = min(due, fresh.deadline)


class _Post:
    """One request on its connection; the parser calls its on_ methods."""

    def __init__(
        self,
        url: str,
        body: bytes,
        timeout_s: float,
        first: re.Pattern[bytes],
        last: re.Pattern[bytes],
        key: str | None = None,
        every_chunk: bool = False,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{url}: expected http://HOST:PORT/...")
        self.address = (parts.hostname, parts.port or 80)
        # A server that closes when it is done is how we hear at once that it is.
        head = (
            f"POST {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        )
        if key:
            head += f"Authorization: Bearer {key}\r\n"
        head += "\r\n"
        self.unsent = memoryview(head.encode() + body)
        self.timeout_s = timeout_s
        self.first, self.last = first, last
        self.answer = Answer()
        self.over = False
        self.fileno = -1
        self.start = self.came = self.deadline = 0.0
        self.every_chunk = every_chunk
        self.closely = True
        self._socket: socket.socket | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._bounded = self._closes = self._whole = False
        self._received = 0
        self._line = b""

    def connect(self, timeout_s: float) -> None:
        self.start = time.perf_counter()
        try:
            self._socket = socket.create_connection(self.address, max(timeout_s, 0.001))
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self.fileno = self._socket.fileno()
        except TimeoutError:
            self._too_late()
        except OSError as error:
            self._lost(str(error))

    def send(self) -> None:
        """Send what the kernel takes; the first call starts the clock."""
        if self._socket is None or self.over:
            return
        if not self.deadline:
            self.start = self.came = time.perf_counter()
            self.deadline = self.start + self.timeout_s
        try:
            self.unsent = self.unsent[self._socket.send(self.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self.unsent = self.unsent[:0]  # it may have answered before it closed: read that

    @property
    def interest(self) -> int:
        return select.EPOLLIN | (select.EPOLLOUT if self.unsent else 0)

    def proceed(self, poll: select.epoll) -> None:
        """Go on after the connection became ready."""
        if self.unsent:
            self.send()
            if not self.unsent:
                poll.modify(self.fileno, self.interest)
        self.read()

    def look(self, now: float) -> None:
        """Read what was collected, and see whether time is up."""
        if not self.closely:
            self.read()
        if not self.over and now >= self.deadline:
            self._too_late()

    def read(self) -> None:
        assert self._socket is not None
        try:
            data, extra, _flags, _from = self._socket.recvmsg(READ_BYTES, STAMP_SPACE)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(str(error))
            return
        if not data:
            self._closed()
            return
        stamped = self._note_time(extra)
        fault = self._parse(data)
        if self._pieces:
            self._add_arrival(stamped)
        if self._whole:
            self._end()
        elif fault:
            self._fail(fault)

    def _parse(self, data: bytes) -> str | None:
        """Give it to the parser. Returns what is wrong with it."""
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._whole = True  # its status says enough
        except httptools.HttpParserError as error:
            return f"connection lost: what came is not HTTP: {error}"
        limit = HEAD_BYTES if self.answer.status is None else LIMIT_BYTES
        return f"no end after {self._received} bytes" if self._received > limit else None

    def _note_time(self, extra: list[tuple[int, int, bytes]]) -> bool:
        """Note when what was just read came. Returns whether the kernel told."""
        now, age = time.perf_counter(), age_s(extra)
        # Stamps are wall-clock time: one that is set meanwhile must not bend ours.
        self.came = now if age is None else min(now, max(self.came, now - age))
        return age is not None

    def _add_arrival(self, stamped: bool) -> None:
        data = b"".join(self._pieces)
        self._pieces.clear()
        self.answer.arrivals.append(Arrival((self.came - self.start) * 1000, data))
        if self._is_last(data):
            self._whole = True
        elif self.every_chunk:
            pass
        elif self.closely and stamped and self._closes and self.first.search(data):
            assert self._socket is not None
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, COLLECT_BYTES)
            self.closely = False

    def _is_last(self, data: bytes) -> bool:
        """Whether `last` is in the last lines of what came by now; the last may have no end."""
        text = self._line + data
        whole = text.rfind(b"\n") + 1
        self._line = text[whole : whole + LINE_BYTES]
        start = text.rfind(b"\n", 0, len(text[:whole].rstrip())) + 1
        return self.last.search(text, min(start, max(0, len(text) - 512))) is not None

    def on_header(self, name: bytes, _value: bytes) -> None:
        self._bounded = self._bounded or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        self.answer.status = self._parser.get_status_code()
        self._closes = not self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        # Others than these announce an answer, and are none.
        if self.answer.status == 101 or (self.answer.status or 0) >= 200:
            self._whole = True

    def _end(self) -> None:
        if not self.over:
            self.answer.end_ms = (self.came - self.start) * 1000
            self.over = True

    def _closed(self) -> None:
        if self.answer.status is None:
            self._lost("the server closed it without an answer")
        elif self._bounded:
            self._lost("the server closed it in the middle of the answer")
        else:
            self._end()

    def _lost(self, why: str) -> None:
        self._fail(f"connection lost: {why}")

    def _too_late(self) -> None:
        self._fail(f"no end after {self.timeout_s:g} s")

    def cancel(self) -> None:
        self._fail("cancelled")

    def _fail(self, error: str) -> None:
        self.came = time.perf_counter()
        self.answer.error = error
        self._end()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
