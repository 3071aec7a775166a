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
        speaks_of=("chat",),
    ),
)
