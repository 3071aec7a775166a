"""Tune: which setting is best for a workload?"""

from common.measure.kind import Kind

KINDS = (
    Kind(
        "tune",
        "find the best setting: TUNE_FOR=chat|documents|many; APPLY=1 writes it into tpu.env",
        __name__,
        "TUNE_",
        schema_version=2,
        section=True,
    ),
)
