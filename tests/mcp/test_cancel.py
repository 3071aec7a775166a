"""A tool whose request is cancelled leaves nothing running behind it."""

import threading
from collections.abc import Callable
from typing import Any, cast

import anyio
import pytest
from mcp.server.mcpserver import Context

from common.mcp.server_tools import ServerTools
from common.rig import Rig
from common.serving.record import Serving
from tests.serving.scripted import CHUNKED, ROLE, WORD, Scripted, chunked


class Told:
    """In the place of an MCP request's context: the messages that its tool reports."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    async def report_progress(self, _done: float, _total: float | None, message: str) -> None:
        self.messages.append(message)


ASKS: dict[str, Callable[[ServerTools, Context], Any]] = {
    "ask_model": lambda tools, context: tools.ask_model(context, "hello", 4096),
    "verify_health": lambda tools, context: tools.verify_health(context),
}


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("tool", ASKS)
def test_the_model_is_stopped_too(
    tool: str, streams: bool, tiny: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is closed, also while the prompt is still being read and nothing comes."""
    steps = [(0.0, CHUNKED + chunked(ROLE)), (0.02, chunked(WORD))]
    server = Scripted(steps if streams else [], hold_s=500, again=streams)
    told, ended = Told(), threading.Event()
    tools = ServerTools(tiny.folder)
    found = cast(Serving, type("Served", (), {"url": server.url})())
    monkeypatch.setattr(tools, "_served", lambda: found)

    def call() -> None:
        try:
            ASKS[tool](tools, cast(Context, told))
        finally:
            ended.set()

    async def begin_and_cancel() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, call)
            while len(told.messages) < 2:
                await anyio.sleep(0.02)
            group.cancel_scope.cancel()

    anyio.run(begin_and_cancel)
    assert ended.is_set()
    assert server.left.wait(60)
    assert set(told.messages) <= {"the model is writing", "waiting for a reply"}
