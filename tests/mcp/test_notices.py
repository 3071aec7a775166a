"""A cancelled request of an MCP client ends what it asked for."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from common.engines import asking
from common.engines.llamacpp.build import Engine
from common.mcp import notices
from common.rig import Rig
from common.serving import client, stream
from common.serving.process import Server


class Cancelled(BaseException):
    """As anyio has it: no Exception."""


def cancelled(*_: object) -> None:
    raise Cancelled


def busy(url: str) -> bool:
    return "requests_processing 1" in asking.text(url, "/metrics")


def test_a_cancelled_question_closes_its_connection(
    tiny: Rig, fake: Callable[..., Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "tell", cancelled)
    monkeypatch.setattr(stream, "TICK_S", 0.1)
    stop = threading.Event()
    replies: list[client.Reply] = []
    body = client.chat("hello", 100_000)

    def work() -> None:
        replies.extend(client.ask(server.rig.url, [body], 300, stop))

    with Server(tiny, fake(rate="100"), tmp_path / "log") as server:
        with pytest.raises(Cancelled):
            notices.meanwhile(cast(Any, None), "asking", work, stop)
        assert replies[0].error == "cancelled"
        assert replies[0].content
        limit = time.monotonic() + 30
        while busy(server.rig.url) and time.monotonic() < limit:
            time.sleep(0.05)
        assert not busy(server.rig.url)


def test_what_nobody_cancels_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(notices, "tell", lambda *what: told.append(what))
    stop = threading.Event()
    assert notices.meanwhile(cast(Any, None), "x", lambda: stop.wait(1.5), stop) is False
    assert told
    assert not stop.is_set()
