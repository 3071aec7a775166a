"""Identity: is the greedy text the same with the drafter?"""

from common.measure.kind import Kind

KINDS = (
    Kind(
        "identity",
        "is the greedy text the same with the drafter?",
        __name__,
        "IDENTITY_",
        schema_version=2,
        section=True,
        quick=False,
    ),
)
