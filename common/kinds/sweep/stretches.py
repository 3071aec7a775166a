"""Stretches: parts of one document, none of which is given to two requests of a server."""

from common.errors import RigError
from common.measure.texts import MADE_SEED, Document, Tokenizer, document, made
from common.rig import Rig

CHARACTERS = 8  # of a token, at most


def long_enough(rig: Rig, tokenizer: Tokenizer, tokens: int) -> Document:
    """The rig's document, if it is so long; else made-up English that is.

    Raises RigError if it is too short and LONGCTX_DOC names it.
    """
    source = document(rig)
    if tokenizer.count(source.text) >= tokens:
        return source
    if rig.longctx_doc:
        raise RigError(
            f"{source.origin} is too short: requests with a part of it each need {tokens:,} "
            "tokens; name a longer one, or lower LONGMIXED_PARALLEL"
        )
    text = made(MADE_SEED, tokens * CHARACTERS)
    return Document(text, f"made-up English, seed {MADE_SEED}")


class Stretches:
    """Cuts one stretch after the other; after the end it goes on at the beginning."""

    def __init__(self, source: Document, tokenizer: Tokenizer) -> None:
        self.source, self.tokenizer = source, tokenizer
        self.at = 0

    def cut(self, tokens: int) -> str:
        """The next stretch of exactly so many tokens."""
        for _ in range(2):
            rest = self.source.text[self.at : self.at + tokens * CHARACTERS]
            text = self.tokenizer.cut(rest, tokens)
            if text is not None:
                self.at += len(text)
                return text
            self.at = 0
        raise RigError(f"the document ({self.source.origin}) has no {tokens} tokens")
