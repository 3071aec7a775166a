"""Repetition: text that says itself again, and text that does not."""

from pathlib import Path

import pytest

from common.measure import repetition
from common.measure.texts import made
from common.rig import ROOT


def test_what_is_said_once_repeats_nothing() -> None:
    assert repetition.share(["the quick brown fox jumps over the lazy dog"]) == 0


def test_a_sentence_said_for_ever_is_all_repetition_but_its_first_time() -> None:
    sentence = "The house has been a good place to be. "
    text = sentence * 10
    assert repetition.repeats(text) == (len(text) - 23 - len(sentence), len(text) - 23)


def test_each_text_stands_on_its_own() -> None:
    text = "one sentence of more than a window of characters"
    assert repetition.share([text, text]) == 0


@pytest.mark.parametrize("texts", [[], [""], ["short"]])
def test_too_little_text_has_no_share(texts: list[str]) -> None:
    assert repetition.share(texts) is None


@pytest.mark.parametrize("name", ["README.md", "docs/METHOD.md", "docs/HOSTS.md", "common/rig.py"])
def test_people_and_programs_stay_below_the_bound(name: str) -> None:
    text = (ROOT / name).read_text()
    share = repetition.share([text[at : at + 1200] for at in range(0, len(text) - 1200, 1200)])
    assert share is not None
    assert share < repetition.MUCH / 2


def test_made_text_stays_below_it_too() -> None:
    share = repetition.share([made(seed, 1200) for seed in range(20)])
    assert share is not None
    assert share < repetition.MUCH


def test_a_file_of_this_project_said_twice_is_above_it() -> None:
    text = Path(__file__).read_text()[:1200]
    share = repetition.share([text * 2])
    assert share is not None
    assert share > repetition.MUCH
