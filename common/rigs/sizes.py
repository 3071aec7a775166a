"""Sizes: the Gemma 4 models a rig can be made for, and where their files come from.

Layer sizes are in common/weights/shapes.py. Repositories are named only where one is known to hold
the file; of 12B, 26B-A4B and 31B, and of other encodings, none is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from common.errors import RigError, did_you_mean
from common.weights.random_pair import FORMATS, size_of
from common.weights.shapes import SHAPES, Shape

ENCODINGS = tuple(FORMATS)
DRAFTER_ENCODING = "q4_0"


@dataclass(frozen=True)
class Size:
    """One model, at any encoding."""

    name: str
    """what a rig's name says: the fourth slot"""
    title: str
    shape_name: str
    hub: str | None = None
    """repository of the exact Q4_0 file; None where none is known"""
    drafter_hub: str | None = None
    drafter_sha256: str = ""
    """what has been published of the drafter's digest"""
    checkpoint: str | None = None
    """the drafter's published checkpoint, for make repack"""

    @property
    def shape(self) -> Shape:
        return SHAPES[self.shape_name]

    def model_file(self, encoding: str) -> str:
        exact = "-exact" if self.hub and encoding == DRAFTER_ENCODING else ""
        return f"gemma-4-{self.title}-it-{encoding}{exact}.gguf"

    @property
    def drafter_file(self) -> str:
        return f"gemma-4-{self.title}-it-qat-assistant-{DRAFTER_ENCODING}-exact.gguf"

    def model_hub(self, encoding: str) -> str | None:
        return self.hub if encoding == DRAFTER_ENCODING else None

    def file_gib(self, encoding: str) -> float:
        """The model's file, less its metadata: counted from the layer sizes."""
        return size_of(self.shape, "target", encoding) / 2**30


_AUTHOR = "xbill9/gemma-4"
SIZES: Mapping[str, Size] = {
    size.name: size
    for size in (
        Size(
            "2b",
            "E2B",
            "e2b",
            hub=f"{_AUTHOR}-E2B-it-qat-q4_0-exact-gguf",
            drafter_hub=f"{_AUTHOR}-E2B-it-qat-assistant-q4_0-exact-gguf",
            drafter_sha256="060f5a0158f8120d",
            checkpoint="google/gemma-4-E2B-it-qat-q4_0-unquantized-assistant",
        ),
        Size(
            "4b",
            "E4B",
            "e4b",
            hub=f"{_AUTHOR}-E4B-it-qat-q4_0-exact-gguf",
            drafter_hub=f"{_AUTHOR}-E4B-it-qat-assistant-q4_0-exact-gguf",
            drafter_sha256="dc965cb963e56b86",
            checkpoint="google/gemma-4-E4B-it-qat-q4_0-unquantized-assistant",
        ),
        Size("12b", "12B", "12b"),
        Size("26b", "26B-A4B", "26b"),
        Size("31b", "31B", "31b"),
    )
}


def find(name: str) -> Size:
    """The size of this name. Raises RigError with the known ones."""
    if name not in SIZES:
        known = ", ".join(SIZES)
        raise RigError(f"SIZE={name}: sizes are {known}", fix=did_you_mean(name, SIZES))
    return SIZES[name]


def check_encoding(name: str) -> str:
    """The name, if weights can be stored so. Raises RigError with those that can."""
    if name not in ENCODINGS:
        known = ", ".join(ENCODINGS)
        raise RigError(f"ENCODING={name}: encodings are {known}", fix=did_you_mean(name, ENCODINGS))
    return name
