"""What our client and its peers cost per streamed chunk, and how true our figures are.

What is judged is our cost over the lightest peer's in the same run: microseconds alone say as much
about the host as about the client.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Literal, cast

from common.kinds.bench_client.plan import OURS
from common.kinds.bench_client.schema import Beside, Row, Summary, UsPerChunk
from common.measure import run
from common.measure.journal import Client, ClientManifest

MOST_SHARE = 0.2
"""what our cost may be of the lightest peer's, at any number of streams"""


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
        spreads = {name: _spread(values) for name, values in costs.items()}
        rows.append(
            {
                "streams": streams,
                "us_per_chunk": spreads,
                **_lightest(spreads),
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
        "verdict": _verdict(rows),
    }


def _lightest(costs: dict[str, UsPerChunk | None]) -> Beside:
    """The peer with the least median cost, and our cost as a share of it; None without a peer."""
    medians = {name: cost["median"] for name, cost in costs.items() if cost}
    own = medians.pop(OURS)
    if not medians:
        return {"lightest": None, "share": None}
    name = min(medians, key=lambda peer: medians[peer])
    return {"lightest": name, "share": _round(own / medians[name])}


def _verdict(rows: Sequence[Row]) -> Literal[None, "met", "missed"]:
    """Whether the goal is met at every number of streams; None if one has no peer beside it, and
    none of the others misses it."""
    shares = [row["share"] for row in rows]
    if any(share is not None and share > MOST_SHARE for share in shares):
        return "missed"
    return None if None in shares else "met"


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
