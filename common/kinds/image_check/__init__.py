"""Image: what is in the container image of a rig, without running a model in it."""

from common.measure.kind import Kind

KINDS = (
    Kind(
        "image-check",
        "build a rig's image and look into it",
        __name__,
        "IMAGE_CHECK_",
        has_rows=False,
        quick=False,
        of_rig=False,
    ),
)
