"""Notices: what an MCP tool tells its client while it works. For tools that run in a thread."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import anyio.from_thread
from mcp.server.mcpserver import Context

T = TypeVar("T")


def tell(context: Context, done: float, total: float | None, message: str) -> None:
    """Report progress to the client. Ends the tool if the client has cancelled the request."""
    anyio.from_thread.check_cancelled()
    anyio.from_thread.run(context.report_progress, done, total, message[:200])


def watcher(context: Context, message: str) -> Callable[[], None]:
    """What work that looks around now and then calls to report the seconds that have passed. It
    ends that work if the client has cancelled the request."""
    begin = time.monotonic()
    return lambda: tell(context, time.monotonic() - begin, None, message)


def meanwhile(context: Context, message: str, work: Callable[[], T]) -> T:
    """Do `work`, which has no steps to count, and report the seconds that have passed.

    It is done to its end, also if the client has cancelled the request.
    """
    begin = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        while not wait([future], 1).done:
            tell(context, time.monotonic() - begin, None, message)
        return future.result()
