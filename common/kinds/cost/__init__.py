"""Cost: from which acceptance does drafting pay?"""

from common.measure.kind import Kind

KINDS = (
    Kind(
        "cost",
        "from which acceptance does drafting pay? random weights, no download",
        __name__,
        "COST_",
        schema_version=2,
        section=True,
        paired=True,
    ),
)
