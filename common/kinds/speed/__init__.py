"""Speed: what is each draft length worth?"""

from common.measure.kind import Kind

KINDS = (
    Kind(
        "speed",
        "what is each draft length worth?",
        __name__,
        "SPEED_",
        section=True,
        paired=True,
        schema_version=2,
        speaks_of=("chat",),
    ),
)
