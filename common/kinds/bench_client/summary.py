"""Bench: what our client and its peers cost per streamed chunk, and how true our figures are."""

from pathlib import Path
from statistics import median
from typing import cast

from common.kinds.bench_client.plan import OURS
from common.kinds.bench_client.schema import Row, Summary, UsPerChunk
from common.measure import run
from common.measure.journal import Client, ClientManifest
from common.measure.rows import given

# What must hold.
MOST_US = 10.0
MOST_OF_BENCHY = 1 / 3
MOST_TTFT_MS = 2.0
MOST_RATE_ERROR = 0.005


def summarise(folder: Path) -> Summary:
    """Every figure of a bench-client report, from the run directory alone."""
    manifest = cast(ClientManifest, run.read_manifest(folder))
    journal: list[Client] = run.read_lines(folder, run.JOURNAL)
    lines = [line for line in journal if line["failed"] is None]
    failures = {line["client"]: failed for line in journal if (failed := line["failed"])}
    rows: list[Row] = []
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
        "what": "bench-client",
        "complete": manifest["ended"] is not None,
        "rows": rows,
        "failures": failures,
        "broken": [text for row in rows for text in _broken(row)],
    }


def _broken(row: Row) -> list[str]:
    """What must hold and does not, at this number of streams."""
    costs, where = row["us_per_chunk"], f"at {row['streams']} streams"
    own = given(costs[OURS])["median"]
    found = []
    if own > MOST_US:
        found.append(f"{own:.1f} microseconds per chunk {where}")
    benchy = costs.get("llama-benchy")
    if benchy and own > benchy["median"] * MOST_OF_BENCHY:
        found.append(f"{own / benchy['median']:.2f} of llama-benchy {where}")
    if row["ttft_error_ms"] > MOST_TTFT_MS:
        found.append(f"TTFT off by {row['ttft_error_ms']:.2f} ms {where}")
    if row["rate_error"] > MOST_RATE_ERROR:
        found.append(f"total rate off by {row['rate_error']:.2%} {where}")
    return found


def _spread(values: list[float]) -> UsPerChunk | None:
    if not values:
        return None
    return {
        "n": len(values),
        "low": _round(min(values)),
        "median": _round(median(values)),
        "high": _round(max(values)),
    }


def _round(value: float) -> float:
    return float(f"{value:.4g}")
