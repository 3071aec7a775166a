"""Builds: is another engine faster here?"""

from common.measure.kind import Kind

KINDS = (
    Kind(
        "builds",
        "is another build of llama.cpp faster here, and does the drafter pay in it? (BUILDS_...)",
        __name__,
        "BUILDS_",
        schema_version=2,
        section=True,
    ),
)
