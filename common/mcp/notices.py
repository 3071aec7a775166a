"""Notices: what an MCP tool tells its client while it works. For tools that run in a thread."""

import threading
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


def meanwhile(
    context: Context, message: str, work: Callable[[], T], stop: threading.Event | None = None
) -> T:
    """Do `work`, which has no steps to count, and report the seconds that have passed.

    If the client has cancelled the request, `stop` is set, and `work` should end soon.
    """
    begin = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        try:
            while not wait([future], 1).done:
                tell(context, time.monotonic() - begin, None, message)
        except BaseException:
            if stop is not None:
                stop.set()
            raise
        return future.result()
