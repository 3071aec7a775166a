"""Tokenizer: a running server's own count of tokens, and text cut to an exact number of them."""

from dataclasses import dataclass

import requests

from common.errors import RigError


@dataclass(frozen=True)
class Tokenizer:
    """Counts with the /tokenize of the server at `url`, without begin-of-text tokens."""

    url: str

    def count(self, text: str) -> int:
        """Raises RigError if the server does not answer."""
        body = {"content": text, "add_special": False}
        try:
            reply = requests.post(f"{self.url}/tokenize", json=body, timeout=300)
            reply.raise_for_status()
            return len(reply.json()["tokens"])
        except (requests.RequestException, ValueError, KeyError) as error:
            raise RigError(f"{self.url}/tokenize did not answer: {error}") from None

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
