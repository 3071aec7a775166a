"""Bench-repack: the exact repack beside llama-quantize."""

from common.measure.kind import Kind

KINDS = (
    Kind(
        "bench-repack",
        "time the exact repack against llama-quantize",
        __name__,
        "BENCH_REPACK_",
        has_rows=False,
        quick=False,
        of_rig=False,
    ),
)
