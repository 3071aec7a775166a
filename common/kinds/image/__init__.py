"""Image: what is in the container image of a rig, without running a model in it."""

from common.measure.kind import Kind

KINDS = (
    Kind(
        "image",
        "build a rig's image and look into it",
        __name__,
        "IMAGE_",
        has_rows=False,
        quick=False,
        of_rig=False,
    ),
)
