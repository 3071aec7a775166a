"""Bench: what our client and its peers cost per streamed chunk, and how true our figures are."""

import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import requests

from common.errors import RigError
from common.kinds.bench_client.peers import Peer, cpu_between
from common.measure import run
from common.rig import ROOT
from common.serving import client

OURS = "gemma-rigs"
STREAMS = (1, 16, 64)
CHUNKS = 256
RATE = 50.0
TTFT_S = 0.05
ROUNDS = 3
LIMIT_S = 120.0
# What must hold.
MOST_US = 10.0
MOST_OF_BENCHY = 1 / 3
MOST_TTFT_MS = 2.0
MOST_RATE_ERROR = 0.005


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
    before = len(requests.get(f"{url}/truth", timeout=30).json())
    samples = peer.run(url, streams, CHUNKS)
    log = requests.get(f"{url}/truth", timeout=30).json()[before:]
    served = [line for line in log if line["chunks"] == CHUNKS]
    if len(served) != streams:
        raise RigError(f"{peer.name} made {len(served)} requests instead of {streams}")
    first, last = min(line["first_s"] for line in served), max(line["last_s"] for line in served)
    cpu_s = cpu_between(samples, first, last)
    return {"us_per_chunk": cpu_s / (streams * CHUNKS) * 1e6}


def summarise(folder: Path) -> dict[str, Any]:
    """Every figure of a bench-client report, from the run directory alone."""
    manifest = run.read_manifest(folder)
    journal = run.read_lines(folder, run.JOURNAL)
    lines = [line for line in journal if line["failed"] is None]
    failures = {line["client"]: line["failed"] for line in journal if line["failed"]}
    rows = []
    for streams in manifest["streams"]:
        costs = {}
        for name in manifest["clients"]:
            found = [line for line in lines if (line["client"], line["streams"]) == (name, streams)]
            costs[name] = [line["us_per_chunk"] for line in found]
        own = [line for line in lines if (line["client"], line["streams"]) == (OURS, streams)]
        rows.append(
            {
                "streams": streams,
                "us_per_chunk": {name: _spread(values) for name, values in costs.items()},
                "ttft_error_ms": _round(median(line["ttft_error_ms"] for line in own)),
                "worst_ttft_error_ms": _round(max(line["worst_ttft_error_ms"] for line in own)),
                "rate_error": _round(median(abs(line["rate_error"]) for line in own)),
                "worst_rate_error": _round(max(abs(line["rate_error"]) for line in own)),
            }
        )
    return {
        "schema": 1,
        "what": "bench-client",
        "complete": manifest["ended"] is not None,
        "rows": rows,
        "failures": failures,
        "broken": [text for row in rows for text in _broken(row)],
    }


def _broken(row: dict[str, Any]) -> list[str]:
    """What must hold and does not, at this number of streams."""
    costs, where = row["us_per_chunk"], f"at {row['streams']} streams"
    found = []
    if costs[OURS]["median"] > MOST_US:
        found.append(f"{costs[OURS]['median']:.1f} microseconds per chunk {where}")
    benchy = costs.get("llama-benchy")
    if benchy and costs[OURS]["median"] > benchy["median"] * MOST_OF_BENCHY:
        found.append(f"{costs[OURS]['median'] / benchy['median']:.2f} of llama-benchy {where}")
    if row["ttft_error_ms"] > MOST_TTFT_MS:
        found.append(f"TTFT off by {row['ttft_error_ms']:.2f} ms {where}")
    if row["rate_error"] > MOST_RATE_ERROR:
        found.append(f"total rate off by {row['rate_error']:.2%} {where}")
    return found


def _spread(values: list[float]) -> dict[str, Any] | None:
    if not values:
        return None
    return {"n": len(values), "low": _round(min(values)), "median": _round(median(values)),
            "high": _round(max(values))}  # fmt: skip


def _round(value: float) -> float:
    return float(f"{value:.4g}")
