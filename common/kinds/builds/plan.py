"""Builds: the rig's own engine beside another build of it, each with and without the drafter."""

import os
from collections.abc import Mapping

from common.engines import Engine
from common.engines.llamacpp import build, compiling
from common.errors import RigError
from common.host import container
from common.measure.arms import rounds, short_cells, short_prompts
from common.measure.kind import Tools
from common.measure.plan import Arm, Plan
from common.measure.rows import BASELINE
from common.rig import Rig

KEYS = ("ENGINE", "CUDA_VERSION", "CUDA_ARCHITECTURES", "CMAKE_EXTRA")
PREFIX = "other "
"""how the names of the other build's arms begin"""


def changes(rig: Rig) -> dict[str, str]:
    """What the other build changes in the rig: its BUILDS_ settings that are not empty.

    Raises RigError if that makes no other build.
    """
    settings = rig.settings()
    found = {key: settings[f"BUILDS_{key}"] for key in KEYS if settings[f"BUILDS_{key}"]}
    other = rig.variant(found)
    same_cuda = rig.backend == "cpu" or other.cuda_version == rig.cuda_version
    # A container has the engines it was built with, whatever ENGINE says.
    same_kind = build.CONTAINER.is_file() or other.engine == rig.engine
    if same_kind and other.engine == "embedded" and not build.CONTAINER.is_file():
        raise RigError(
            f"{rig.name}: the embedded engine is not compiled here, so BUILDS_CMAKE_EXTRA changes "
            "nothing in it; set BUILDS_ENGINE=source, or ENGINE=source"
        )
    if same_kind and same_cuda and compiling.cmake_flags(other) == compiling.cmake_flags(rig):
        raise RigError(
            f"{rig.name}: the other build is the rig's own; set BUILDS_CUDA_VERSION, "
            "BUILDS_CUDA_ARCHITECTURES, BUILDS_CMAKE_EXTRA or BUILDS_ENGINE to something else"
        )
    return found


def check_place(rig: Rig, other: Rig) -> None:
    """Raise RigError if this host cannot have both engines."""
    two_cudas = rig.backend == "cuda" and other.cuda_version != rig.cuda_version
    if two_cudas and not build.OTHER.is_file():
        try:
            for one in (rig, other):
                compiling.check_tools(one)
        except RigError as error:
            raise RigError(
                f"the builds want CUDA {rig.cuda_version} and {other.cuda_version}; {error.what}",
                fix="RUNNER=docker make builds makes an image of each",
            ) from None


def check(other: Rig, own: Engine, second: Engine) -> None:
    """Raise RigError unless `second` is the other build, of the same source as `own` if both are
    compiled here."""
    if not second.is_build(other):
        raise RigError(
            f"{second.server} is not the build that the BUILDS_ settings ask for; unset "
            "LLAMA_SERVER, IMAGE and OTHER_IMAGE, and both are built as tpu.env says"
        )
    one_kind = own.embedded == second.embedded
    if one_kind and own.info.get("source") != second.info.get("source"):
        raise RigError(
            f"the engines are not of one source: {own.title} and {second.title}; build both again "
            "with make builds"
        )


def plan(rig: Rig, second: Engine, images: Mapping[str, str], quick: bool = False) -> Plan:
    """Speed's six prompts, four rounds and the drift check; quick as speed's.

    images: the digests of the container images, if it runs in one.
    """
    return Plan(
        "builds",
        arms(rig, second),
        short_cells(rig, quick),
        rounds(rig, quick),
        quick,
        inputs={"images": dict(images)},
        prompts=short_prompts(rig),
    )


def arms(rig: Rig, second: Engine) -> list[Arm]:
    """The rig's own build without drafter and as it is, then the other build likewise."""
    drafts: dict[str, dict[str, str]] = {BASELINE: {"SPEC_TYPE": ""}}
    if rig.drafts:
        name = f"n={rig.spec_draft_n_max}" if rig.needs_drafter else str(rig.spec_type)
        drafts[name.replace(",", "+")] = {}
    found = [Arm(name, change) for name, change in drafts.items()]
    other = changes(rig)
    return found + [Arm(PREFIX + name, {**c, **other}, second) for name, c in drafts.items()]


def planned(rig: Rig, tools: Tools) -> tuple[Rig, Plan]:
    other = rig.variant(changes(rig))
    check_place(rig, other)
    own = tools.engine(rig)
    second = tools.other_engine(other)
    check(other, own, second)
    container.check_card(other, second)
    digests = {build: os.environ.get(f"{build.upper()}_IMAGE_DIGEST") for build in ("rig", "other")}
    images = {build: digest for build, digest in digests.items() if digest}
    return rig, plan(rig, second, images, tools.quick)
