"""Document: the text that long prompts are cut from."""

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from common import made_text
from common.errors import RigError
from common.rig import Rig

# Where the NVIDIA driver installs its README; the published study read this one.
DRIVER_README = (
    "/usr/share/doc/NVIDIA_GLX-1.0/README.txt",
    "/usr/share/doc/nvidia-driver/README.txt.gz",
    "/usr/share/doc/nvidia-driver-full/README.txt.gz",
)
MADE_SEED = 11
MADE_CHARACTERS = 900_000


@dataclass(frozen=True)
class Document:
    """A text and where it is from."""

    text: str
    origin: str

    def about(self) -> dict[str, str]:
        """Origin and SHA-256, for the manifest."""
        return {
            "document": self.origin,
            "document_sha256": hashlib.sha256(self.text.encode()).hexdigest(),
        }


def load(rig: Rig) -> Document:
    """LONGCTX_DOC if set, else the driver's README on a GPU rig, else made-up English.

    Raises RigError if LONGCTX_DOC cannot be read, is not UTF-8 or not what LONGCTX_DOC_SHA256 says.
    """
    if rig.longctx_doc:
        return _read(Path(rig.longctx_doc), rig.longctx_doc_sha256, "LONGCTX_DOC")
    if rig.backend == "cuda":
        for name in DRIVER_README:
            if Path(name).is_file():
                return _read(Path(name), rig.longctx_doc_sha256, "the NVIDIA driver README")
    return Document(
        made_text.make(MADE_SEED, MADE_CHARACTERS), f"made-up English, seed {MADE_SEED}"
    )


def _read(path: Path, wanted: str | None, what: str) -> Document:
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
    except OSError as error:
        raise RigError(f"{what} {path} cannot be read: {error.strerror}") from None
    digest = hashlib.sha256(data).hexdigest()
    if wanted and not digest.startswith(wanted):
        raise RigError(f"{what} {path} has SHA-256 {digest}, LONGCTX_DOC_SHA256 says {wanted}")
    try:
        return Document(data.decode(), f"{what}, {path.name}")
    except UnicodeDecodeError as error:
        raise RigError(f"{what} {path} is not UTF-8: byte {error.start}") from None
