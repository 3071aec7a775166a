"""Repetition: how much of a reply says again what it has said before.

A model that says one sentence over and over is not a model at work, and drafts taken from its own
text are then nearly always right: its speed-ups are not those of ordinary text.
"""

from collections.abc import Iterable

WINDOW = 24
"""characters, some four words: two words in a row come again by chance, four seldom"""
MUCH = 0.2
"""above this a run's replies are not ordinary text: of 1,200 characters of manuals and licences
1 to 2% repeat, of Python source 7%; of six such pieces together 16% at most, 99 times in 100"""


def repeats(text: str) -> tuple[int, int]:
    """Windows of the text that stand in it before, and windows in all."""
    seen: set[str] = set()
    again = 0
    count = max(0, len(text) - WINDOW + 1)
    for start in range(count):
        window = text[start : start + WINDOW]
        again += window in seen
        seen.add(window)
    return again, count


def share(texts: Iterable[str]) -> float | None:
    """The share of windows that repeat, each text on its own; None if none is that long."""
    again = count = 0
    for text in texts:
        own, of = repeats(text)
        again, count = again + own, count + of
    return again / count if count else None
