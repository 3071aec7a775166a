"""Accuracy: are the answers as good with the drafter?"""

from common.measure.kind import Kind

KINDS = (
    Kind(
        "accuracy",
        "are the answers as good with the drafter? GSM8K and BFCL",
        __name__,
        "ACCURACY_",
        section=True,
        quick=False,
    ),
)
