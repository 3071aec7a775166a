"""Bench-client: what the streaming client costs, beside its peers."""

from common.measure.kind import Kind

KINDS = (
    Kind(
        "bench-client",
        "what the streaming client costs, beside its peers",
        __name__,
        "BENCH_CLIENT_",
        schema_version=2,
        has_rows=False,
        of_rig=False,
    ),
)
