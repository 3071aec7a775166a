"""Formats: is the drafter as good in exact Q4_0 as in Q8_0 and bf16?"""

from common.measure.kind import Kind

KINDS = (
    Kind(
        "formats",
        "is the drafter as good in exact Q4_0 as in Q8_0 and bf16? and others",
        __name__,
        "FORMATS_",
        schema_version=2,
        section=True,
        paired=True,
    ),
)
