"""Our own server is asked without a proxy, with its key, and what it answers is bounded."""

import http.server
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from common.engines import asking
from common.engines.llamacpp import counters, serve
from common.errors import RigError
from common.measure.texts import Tokenizer
from common.rig import ROOT

METRICS = "llamacpp:prompt_tokens_total 1\nllamacpp:tokens_predicted_total 2\n"
METRICS += "llamacpp:n_decode_total 3\n"
ANSWERS = {
    "/health": '{"status": "ok"}',
    "/metrics": METRICS,
    "/tokenize": '{"tokens": [1, 2, 3]}',
    "/props": '{"total_slots": 4, "default_generation_settings": {"n_ctx": 512}}',
    "/list": "[]",
    "/deep": "[" * 100_000,
    "/page": "<html></html>",
}


class Handler(http.server.BaseHTTPRequestHandler):
    """A server that knows a key, or none; a path that is a whole address is a proxy's."""

    key: str | None = None
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.key and self.headers.get("Authorization") != f"Bearer {self.key}":
            self.send_error(401)
            return
        if self.path == "/endless":
            self.endless()
            return
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            return
        content = ANSWERS.get(self.path)
        self.send_response(503 if content is None else 200)
        self.end_headers()
        self.wfile.write((content or "").encode())

    do_POST = do_GET  # noqa: N815

    def endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"llamacpp:x 1\n" * 10)
                time.sleep(0.01)
        except OSError:
            pass

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering(key: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """A server, and the paths that it was asked for."""
    paths: list[str] = []
    own = type("Own", (Handler,), {"key": key, "asked": paths})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), own) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_no_proxy_is_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "localhost")
    with answering() as (url, asked), answering() as (proxy, strangers):
        monkeypatch.setenv(name, proxy)
        assert serve.healthy(url)
        assert serve.slots(url) == (4, 512)
        assert counters.read(url).predicted_tokens == 2
        assert Tokenizer(url).count("three words here") == 3
    assert asked == ["/health", "/props", "/metrics", "/tokenize"]
    assert strangers == []


def test_a_proxy_that_python_cannot_use_is_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    with answering() as (url, _asked):
        assert serve.healthy(url)


def test_no_other_file_asks_our_server() -> None:
    """What asks with `requests` or urllib asks the world outside, or is the container's check."""
    world = {
        "common/engines/asking.py",
        "common/files/hub.py",
        "common/index.py",
        "common/kinds/accuracy/questions.py",
        "scripts/health.py",
    }
    asks = re.compile(r"^\s*(import requests|from requests|import urllib\.request)", re.MULTILINE)
    found = {
        str(file.relative_to(ROOT))
        for folder in ("common", "scripts")
        for file in (ROOT / folder).rglob("*.py")
        if asks.search(file.read_text())
    }
    assert found == world


@pytest.mark.parametrize(
    ("variable", "key"),
    [("one", "one"), ("one,two", "one"), (",one,two", "one"), ("\none\r\ntwo\n", "one")],
)
def test_the_key_is_sent_everywhere(
    variable: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_API_KEY", variable)
    with answering(key) as (url, _asked):
        assert counters.read(url).predicted_tokens == 2
        assert serve.slots(url) == (4, 512)
        assert Tokenizer(url).count("x") == 3


@pytest.mark.parametrize("variable", ["", " ", "\n", ",", " , \n"])
def test_no_key_is_none(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_API_KEY", variable)
    assert asking.key() is None


def test_a_refused_key_says_which_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_API_KEY", "wrong")
    with (
        answering("right") as (url, _asked),
        pytest.raises(RigError, match=r"/metrics refuses our key \(HTTP 401\); set LLAMA_API_KEY"),
    ):
        counters.read(url)


def test_an_answer_without_end_is_cut() -> None:
    with answering() as (url, _asked), pytest.raises(RigError, match="/endless does not end"):
        asking.text(url, "/endless", timeout_s=0.3)


@pytest.mark.parametrize("path", ["/list", "/deep", "/page"])
def test_what_is_no_object_is_one_line(path: str) -> None:
    with (
        answering() as (url, _asked),
        pytest.raises(RigError, match=f"^{url}{path} answered with something else than a JSON"),
    ):
        asking.value(url, path)


@pytest.mark.parametrize(
    "told", ["[]", "null", "{}", '{"default_generation_settings": [1], "total_slots": "4"}']
)
def test_odd_properties_are_absent(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANSWERS, "/props", told)
    with answering() as (url, _asked):
        assert serve.slots(url) == (None, None)


def test_nobody_is_followed_elsewhere() -> None:
    with answering() as (url, _asked):
        assert asking.ask(url, "/moved").status == 302


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://None:80", "http://[::1:80", "http:"])
def test_no_answer_is_one_line(url: str) -> None:
    with pytest.raises(RigError, match="did not answer") as said:
        asking.ask(url, "/health")
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    "text",
    [
        "<html>llamacpp:prompt_tokens_total</html>",
        METRICS.replace("_total 2", "_total 1e999"),
        METRICS.replace("_total 2", "_total -2"),
        METRICS + "llamacpp:spec_decode_num_drafts_total NaN",
        METRICS + "llamacpp:spec_decode_num_draft_tokens_total +Inf",
        METRICS + "llamacpp:n_busy_slots_per_decode x",
        METRICS.replace("_total 2", "_total 1e"),
        METRICS + 'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2000000000"} 1',
        METRICS + 'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1024"} 1',
    ],
)
def test_what_counts_nothing_is_absent_not_0(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANSWERS, "/metrics", text)
    with (
        answering() as (url, _asked),
        pytest.raises(RigError, match=r"/metrics: the reply|no count"),
    ):
        counters.read(url)
