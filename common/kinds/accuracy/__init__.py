"""Accuracy: are the answers as good with the drafter?"""

from common.measure.kind import Kind

KINDS = (
    Kind(
        "accuracy",
        "are the answers as good with the drafter? GSM8K and BFCL",
        __name__,
        "ACCURACY_",
        schema_version=2,
        section=True,
        quick=False,
    ),
)
