"""What summary.json of a bench-client run holds, and nothing else."""

from typing import Literal

from common.measure.summary import NotNegative, Some, Strict


class UsPerChunk(Strict):
    n: Some
    low: float
    median: float
    high: float


class Beside(Strict):
    lightest: str | None
    """the peer that costs least"""
    share: NotNegative | None
    """our cost over its"""


class Row(Beside):
    streams: Some
    us_per_chunk: dict[str, UsPerChunk | None]
    ttft_error_ms: NotNegative
    worst_ttft_error_ms: NotNegative
    rate_error: NotNegative
    worst_rate_error: NotNegative


class Summary(Strict):
    what: str
    complete: bool
    failures: dict[str, str]
    verdict: Literal[None, "met", "missed"]
    rows: list[Row]
