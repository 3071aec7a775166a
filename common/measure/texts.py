"""Texts: prompts, made-up English, and the document that long prompts are cut from."""

import gzip
import hashlib
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from common.engines import asking
from common.errors import RigError
from common.rig import Rig

WORDS = Path(__file__).with_name("words.yaml")
MOST_BYTES = 1 << 28
"""of a document: no model reads so much, and a small packed file may become endless"""
SIX = Path(__file__).with_name("six.yaml")
"""six short prompts, which several measurements ask"""
OPENINGS = Path(__file__).with_name("openings.yaml")
"""six beginnings of text in their place, for a base model"""


def prompts(path: Path) -> dict[str, str]:
    """The prompts of a YAML file, name -> text, in the file's order."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {key: text.strip() for key, text in found.items()}


def made(seed: int, characters: int) -> str:
    """Varied English of so many characters: sentences drawn anew, no passage repeated."""
    pieces: list[str] = []
    length = 0
    for sentence in _sentences(random.Random(seed)):  # noqa: S311 (text, not a secret)
        pieces.append(sentence)
        length += len(sentence)
        if length >= characters:
            return "".join(pieces)[:characters]
    raise AssertionError("the sentences never end")


@cache
def _words() -> dict[str, list[str]]:
    """who, did, what, where, when and why: read once, a sweep makes text hundreds of times."""
    return dict(yaml.safe_load(WORDS.read_text(encoding="utf-8")))


def _sentences(rng: random.Random) -> Iterator[str]:
    """Sentences with spaces after them, in paragraphs, for ever."""
    words = _words()
    while True:
        for _ in range(rng.randint(3, 7)):
            who, did, what = (
                rng.choice(words["who"]),
                rng.choice(words["did"]),
                rng.choice(words["what"]),
            )
            where, when, why = (
                rng.choice(words["where"]),
                rng.choice(words["when"]),
                rng.choice(words["why"]),
            )
            form = rng.randrange(5)
            if form == 0:
                text = f"{when}, {who} {did} {what} {where}"
            elif form == 1:
                text = f"{who} {did} {what} {why}"
            elif form == 2:
                text = f"{where}, {rng.randint(2, 97)} paces from the road, {who} {did} {what}"
            elif form == 3:
                other, too = rng.choice(words["who"]), rng.choice(words["did"])
                text = f"{who} {did} {what} {when}, and {other} {too} it {where}"
            else:
                text = f"in {rng.randint(1802, 1998)} {who} {did} {what} {where} {why}"
            yield text[0].upper() + text[1:] + ". "
        yield "\n\n"


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


def document(rig: Rig) -> Document:
    """LONGCTX_DOC if set, else the driver's README on a GPU rig, else made-up English.

    Raises RigError if LONGCTX_DOC cannot be read, is not UTF-8 or not what LONGCTX_DOC_SHA256 says.
    """
    if rig.longctx_doc:
        return _read(Path(rig.longctx_doc), rig.longctx_doc_sha256, "LONGCTX_DOC")
    if rig.backend == "cuda":
        for name in DRIVER_README:
            if Path(name).is_file():
                return _read(Path(name), rig.longctx_doc_sha256, "the NVIDIA driver README")
    return Document(made(MADE_SEED, MADE_CHARACTERS), f"made-up English, seed {MADE_SEED}")


def _read(path: Path, wanted: str | None, what: str) -> Document:
    if path.exists() and not path.is_file():
        raise RigError(f"{what} {path} is not a file")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:  # the last two: a packed file cut or damaged
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise RigError(f"{what} {path} cannot be read: {reason}") from None
    if len(data) > MOST_BYTES:
        raise RigError(f"{what} {path} is longer than {MOST_BYTES:,} bytes, packed or not")
    digest = hashlib.sha256(data).hexdigest()
    if wanted and not digest.startswith(wanted):
        raise RigError(f"{what} {path} has SHA-256 {digest}, LONGCTX_DOC_SHA256 says {wanted}")
    try:
        return Document(data.decode(), f"{what}, {path.name}")
    except UnicodeDecodeError as error:
        raise RigError(f"{what} {path} is not UTF-8: byte {error.start}") from None


@dataclass(frozen=True)
class Tokenizer:
    """Counts with the /tokenize of the server at `url`, without begin-of-text tokens."""

    url: str

    def count(self, text: str) -> int:
        """Raises RigError if the server does not answer."""
        body = {"content": text, "add_special": False}
        tokens = asking.value(self.url, "/tokenize", body, timeout_s=300).get("tokens")
        if not isinstance(tokens, list):
            raise RigError(f"{self.url}/tokenize answered without tokens")
        return len(tokens)

    def cut(self, text: str, tokens: int) -> str | None:
        """The start of `text` that is exactly `tokens` long; None if the text is too short.

        Near the end of a piece of text one more character can change the count by more than one,
        so a start with the exact count is searched around the estimate.
        """
        if tokens == 0:
            return ""
        low, high = 0, min(len(text), tokens * 2)
        while self.count(text[:high]) < tokens:
            if high == len(text):
                return None
            low, high = high, min(len(text), high * 2)
        while low + 1 < high:
            middle = (low + high) // 2
            if self.count(text[:middle]) < tokens:
                low = middle
            else:
                high = middle
        for end in range(high, min(len(text), high + 64) + 1):
            if self.count(text[:end]) == tokens:
                return text[:end]
        raise RigError(f"no start of the text is exactly {tokens} tokens long")
