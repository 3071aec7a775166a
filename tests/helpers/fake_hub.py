"""A hub on loopback that behaves, or misbehaves as told, one answer after the other."""

import hashlib
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.helpers.limits import HANG_S

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Answer = Callable[["Handler"], None]


class FakeHub:
    """Use as a context manager. `heads` and `gets` hold what the next requests are answered with;
    once they are used up, answers are right."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.declared: str | None = hashlib.sha256(content).hexdigest()
        self.size = len(content)
        self.commit: str | None = COMMIT
        self.heads: list[Answer] = []
        self.gets: list[Answer] = []
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        """method, path and headers (names in lower case) of every request"""
        self.elsewhere: str | None = None
        """the address that the bytes are at, if they are at another host"""
        self.go_on = threading.Event()

    def __enter__(self) -> "FakeHub":
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.hub = self
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()

    def ranges(self) -> list[str | None]:
        """The Range header of every request for bytes."""
        return [headers.get("range") for method, _path, headers in self.seen if method == "GET"]


class Server(ThreadingHTTPServer):
    daemon_threads = True
    hub: FakeHub

    def handle_error(self, *_: object) -> None:
        """A client that went away is nothing to report."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> FakeHub:
        assert isinstance(self.server, Server)
        return self.server.hub

    def do_HEAD(self) -> None:
        self.answer(self.hub.heads, describe)

    def do_GET(self) -> None:
        self.answer(self.hub.gets, moved if self.hub.elsewhere else whole)

    def answer(self, queue: list[Answer], otherwise: Answer) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.hub.seen.append((self.command, self.path, headers))
        (queue.pop(0) if queue else otherwise)(self)

    def head(self, status: int, headers: dict[str, Any]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()

    def about(self) -> dict[str, Any]:
        found: dict[str, Any] = {"X-Linked-Size": self.hub.size}
        if self.hub.declared:
            found["X-Linked-Etag"] = f'"{self.hub.declared}"'
        if self.hub.commit:
            found["X-Repo-Commit"] = self.hub.commit
        return found

    def log_message(self, format: str, *args: Any) -> None:
        pass


def describe(to: Handler) -> None:
    if to.hub.elsewhere:
        where = to.hub.elsewhere + to.path
        to.head(302, {**to.about(), "Location": where, "Content-Length": 0})
    else:
        to.head(200, {**to.about(), "Content-Length": len(to.hub.content)})


def moved(to: Handler) -> None:
    where = f"{to.hub.elsewhere}{to.path}?Signature=secret-signature"
    to.head(302, {**to.about(), "Location": where, "Content-Length": 0})


def begin(to: Handler) -> int:
    """Send the headers of a right answer; returns the offset it begins at."""
    size, wish = len(to.hub.content), to.headers.get("Range")
    if not wish:
        to.head(200, {"Content-Length": size})
        return 0
    start = int(wish.removeprefix("bytes=").rstrip("-"))
    to.head(
        206, {"Content-Range": f"bytes {start}-{size - 1}/{size}", "Content-Length": size - start}
    )
    return start


def whole(to: Handler) -> None:
    start = begin(to)
    to.wfile.write(to.hub.content[start:])


def cut(length: int) -> Answer:
    """Only so many bytes, then the connection breaks."""

    def answer(to: Handler) -> None:
        start = begin(to)
        to.wfile.write(to.hub.content[start : start + length])
        to.close_connection = True

    return answer


def held(length: int) -> Answer:
    """Only so many bytes, then nothing until `go_on`."""

    def answer(to: Handler) -> None:
        start = begin(to)
        to.wfile.write(to.hub.content[start : start + length])
        to.wfile.flush()
        to.hub.go_on.wait(HANG_S)
        to.close_connection = True

    return answer


def without_ranges(length: int) -> Answer:
    """The file from its beginning, whatever was asked for; only so many bytes of it."""

    def answer(to: Handler) -> None:
        to.head(200, {"Content-Length": len(to.hub.content)})
        to.wfile.write(to.hub.content[:length])
        to.close_connection = True

    return answer


def of_length(length: int) -> Answer:
    """A file of another length, and its headers say so."""

    def answer(to: Handler) -> None:
        to.head(200, {"Content-Length": length})
        to.wfile.write(bytes(length))

    return answer


def endless(length: int) -> Answer:
    """No length in the headers, and so many bytes."""

    def answer(to: Handler) -> None:
        to.close_connection = True
        to.head(200, {"Connection": "close"})
        to.wfile.write((to.hub.content + bytes(length))[:length])

    return answer


def other_range(to: Handler) -> None:
    """Bytes of the file, but not those that were asked for."""
    size = len(to.hub.content)
    to.head(206, {"Content-Range": f"bytes 0-{size - 1}/{size}", "Content-Length": size})
    to.wfile.write(to.hub.content)


def page(to: Handler) -> None:
    body = b"<!doctype html><title>Log in</title>"
    to.head(200, {"Content-Type": "text/html; charset=utf-8", "Content-Length": len(body)})
    if to.command == "GET":
        to.wfile.write(body)


def status(code: int, **headers: str) -> Answer:
    """A status, with a body that echoes the token."""

    def answer(to: Handler) -> None:
        body = f"your token is {to.headers.get('Authorization')}".encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        echo = {"X-Error-Message": body.decode(), "Content-Length": len(body)}
        to.head(code, {**echo, **named})
        if to.command == "GET":
            to.wfile.write(body)

    return answer


def loop(to: Handler) -> None:
    """A redirect to itself, now and for ever."""
    (to.hub.heads if to.command == "HEAD" else to.hub.gets).append(loop)
    to.head(302, {"Location": to.path, "Content-Length": 0})


def in_part(content_range: str | None, start: int = 0) -> Answer:
    """The status for a part of the file, its range said in these words or not at all."""

    def answer(to: Handler) -> None:
        body = to.hub.content[start:]
        about = {} if content_range is None else {"Content-Range": content_range}
        to.head(206, {**about, "Content-Length": len(body)})
        to.wfile.write(body)

    return answer


def with_length(text: str) -> Answer:
    """The whole file, but its length in these words."""

    def answer(to: Handler) -> None:
        to.close_connection = True
        to.head(200, {"Content-Length": text, "Connection": "close"})
        to.wfile.write(to.hub.content)

    return answer
