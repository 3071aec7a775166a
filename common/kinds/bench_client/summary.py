"""Bench: what our client and its peers cost per streamed chunk, and how true our figures are."""

from pathlib import Path
from statistics import median
from typing import Any

from common.kinds.bench_client.plan import OURS
from common.measure import run

# What must hold.
MOST_US = 10.0
MOST_OF_BENCHY = 1 / 3
MOST_TTFT_MS = 2.0
MOST_RATE_ERROR = 0.005


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
    return {
        "n": len(values),
        "low": _round(min(values)),
        "median": _round(median(values)),
        "high": _round(max(values)),
    }


def _round(value: float) -> float:
    return float(f"{value:.4g}")
