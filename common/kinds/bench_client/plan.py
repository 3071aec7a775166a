"""What the streaming client and its peers are asked, and how."""

import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from statistics import median
from typing import Any

from common.engines import asking
from common.errors import RigError
from common.kinds.bench_client.peers import Peer, cpu_between
from common.rig import ROOT
from common.serving import client

OURS = "gemma-rigs"
STREAMS = (1, 16, 64)
CHUNKS = 256
RATE = 50.0
TTFT_S = 0.05
ROUNDS = 3
LIMIT_S = 120.0


@contextmanager
def mock_server() -> Iterator[str]:
    """The mock in a process of its own; its address."""
    command = [sys.executable, "-m", "common.kinds.bench_client.mock", str(RATE), str(TTFT_S)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline().split()
            if not said:
                raise RigError("the mock server did not start")
            yield f"http://127.0.0.1:{said[1]}"
        finally:
            process.kill()


def ours(url: str, streams: int) -> dict[str, Any]:
    """One measurement of our client, in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_ask, url, streams).result()


def _ask(url: str, streams: int) -> dict[str, Any]:
    """CPU of the whole of `ask`, from connecting to the finished replies, and its errors."""
    client.ask(url, [client.chat("hello", 3)], LIMIT_S)  # what is loaded once is not the cost
    start = time.process_time()
    replies = client.ask(url, [client.chat("hello", CHUNKS)] * streams, LIMIT_S)
    cpu_s = time.process_time() - start
    for reply in replies:
        if reply.error or reply.text_chunks != CHUNKS:
            raise RigError(f"a reply was lost: {reply.error or 'not all chunks came'}")
    # The mock's timings are what really happened.
    late = [abs((reply.ttft_ms or 0) - (reply.prompt_ms or 0)) for reply in replies]
    mine = sum(reply.client_per_second or 0 for reply in replies)
    return {
        "us_per_chunk": cpu_s / (streams * CHUNKS) * 1e6,
        "ttft_error_ms": median(late),
        "worst_ttft_error_ms": max(late),
        "rate_error": mine / sum(reply.predicted_per_second or 0 for reply in replies) - 1,
    }


def theirs(peer: Peer, url: str, streams: int) -> dict[str, Any]:
    """One measurement of a peer: CPU of all its processes from the first text sent to the last,
    so neither its start nor its report counts."""
    before = len(_truth(url))
    samples = peer.run(url, streams, CHUNKS)
    log = _truth(url)[before:]
    served = [line for line in log if line["chunks"] == CHUNKS]
    if len(served) != streams:
        raise RigError(f"{peer.name} made {len(served)} requests instead of {streams}")
    first, last = min(line["first_s"] for line in served), max(line["last_s"] for line in served)
    cpu_s = cpu_between(samples, first, last)
    return {"us_per_chunk": cpu_s / (streams * CHUNKS) * 1e6}


def _truth(url: str) -> list[dict[str, Any]]:
    """What the mock server sent, request by request."""
    found: list[dict[str, Any]] = json.loads(asking.text(url, "/truth", timeout_s=30))
    return found
