"""Long context: how deep does the gain reach?"""

from common.measure.kind import Kind

KINDS = (
    Kind(
        "longctx",
        "how deep in a long context does the gain reach?",
        __name__,
        "LONGCTX_",
        schema_version=2,
        section=True,
        paired=True,
        speaks_of=("documents",),
        depth_and_load=True,
    ),
)
