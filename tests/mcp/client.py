"""A real MCP client, the SDK's over stdio, for tests that are not async."""

import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import jsonschema
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.types import CallToolResult, TextContent, Tool

from common.engines.llamacpp.build import Engine
from common.rig import ROOT
from tests.conftest import TINY
from tests.helpers.limits import HANG_S

SPEED_RUN = "2026-12-01-speed-cpu"


class Client:
    """One session. Every answer is held to its tool's output schema."""

    def __init__(self, portal: BlockingPortal, session: ClientSession, name: str) -> None:
        self.portal = portal
        self.session = session
        self.name = name
        """what the server calls itself"""
        self.answered: set[str] = set()
        """tools that gave a result which was no error"""
        self.progress: list[tuple[float, float | None, str | None]] = []
        """what the last call told on its way"""
        self.tools: dict[str, Tool] = {
            tool.name: tool for tool in portal.call(session.list_tools).tools
        }

    def begin(
        self, tool: str, arguments: Mapping[str, Any], limit_s: float = HANG_S
    ) -> "Future[CallToolResult]":
        """Call a tool without waiting for it."""
        self.progress = told = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            told.append((progress, total, message))

        async def call() -> CallToolResult:
            return await self.session.call_tool(
                tool, dict(arguments), read_timeout_seconds=limit_s, progress_callback=note
            )

        return self.portal.start_task_soon(call)

    def end(self, tool: str, call: "Future[CallToolResult]") -> dict[str, Any]:
        result = call.result()
        assert not result.is_error, text(result)
        found = result.structured_content
        assert isinstance(found, dict)
        schema = self.tools[tool].output_schema
        assert schema is not None
        jsonschema.validate(found, schema)
        self.answered.add(tool)
        return found

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer of a tool; fails the test if it is an error."""
        return self.end(tool, self.begin(tool, arguments))

    def refused(self, tool: str, **arguments: Any) -> str:
        """The text of a tool's error; fails the test if there is none."""
        result = self.begin(tool, arguments).result()
        assert result.is_error, result.structured_content
        return text(result)


def text(result: CallToolResult) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))


@asynccontextmanager
async def connected(
    command: list[str], environment: dict[str, str], log: Path
) -> AsyncIterator[tuple[ClientSession, str]]:
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=environment)
    with log.open("a") as errors:
        async with (
            stdio_client(parameters, errlog=errors) as (read, write),
            ClientSession(read, write) as session,
        ):
            told = await session.initialize()
            yield session, told.server_info.name


@contextmanager
def client(command: list[str], environment: Mapping[str, str], log: Path) -> Iterator[Client]:
    """A session with a server that this command starts; its standard error goes to `log`."""
    clean = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME")}
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(connected(command, {**clean, **environment}, log)) as (
            session,
            name,
        ),
    ):
        yield Client(portal, session, name)


class Place:
    """A copy of the rig with a port, models, and a cache of its own."""

    def __init__(self, folder: Path, engine: Engine, port: int) -> None:
        self.rig = folder / TINY.name
        self.log = folder / "mcp.log"
        self.port = port
        runs = self.rig / "benchmarks" / "runs"
        runs.mkdir(parents=True)
        shutil.copy(TINY / "tpu.env", self.rig)
        shutil.copytree(TINY / "benchmarks" / "runs" / SPEED_RUN, runs / SPEED_RUN)
        self.environment = {
            "PYTHONPATH": str(ROOT),
            "PORT": str(self.port),
            "GEMMA_RIGS_CACHE": str(folder / "cache"),
            "MODELS_DIR": str(folder / "models"),
            "LLAMA_SERVER": str(engine.server),
            "SPEED_N_MAX": "1",
        }

    @property
    def command(self) -> list[str]:
        return [sys.executable, str(ROOT / "scripts" / "mcp_server.py"), str(self.rig)]

    def session(self) -> AbstractContextManager[Client]:
        return client(self.command, self.environment, self.log)
