"""Fixtures of the tests of fetching."""

import pytest


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between tries, in seconds; they take no time."""
    seen: list[float] = []
    monkeypatch.setattr("common.files.hub.time.sleep", seen.append)
    return seen
