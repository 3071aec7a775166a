"""Made-up English: varied, seeded, no passage repeated."""

import random
from collections.abc import Iterator
from functools import cache

import yaml

from common import prompts


def make(seed: int, characters: int) -> str:
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
    return dict(yaml.safe_load(prompts.path("words").read_text(encoding="utf-8")))


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
