"""Places: what the variables that name folders may hold."""

from collections.abc import Callable
from pathlib import Path

import pytest

from common import places
from common.errors import RigError


@pytest.mark.parametrize(
    ("key", "found"), [("MODELS_DIR", places.models), ("GEMMA_RIGS_CACHE", places.cache)]
)
def test_a_folder_by_a_variable(
    monkeypatch: pytest.MonkeyPatch, key: str, found: Callable[[], Path]
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for text, path in (("/srv/x", "/srv/x"), ("~/x y", "/home/me/x y"), ("~", "/home/me")):
        monkeypatch.setenv(key, text)
        assert found() == Path(path)
    for text in ("x", "./x", "~other/x"):
        monkeypatch.setenv(key, text)
        with pytest.raises(RigError, match=f"{key}=.*: expected a path from / or ~/"):
            found()


def test_absent_and_empty_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("GEMMA_RIGS_CACHE", "")
    monkeypatch.setenv("MODELS_DIR", "")
    for users, path in (("", "/home/me/.cache"), ("relative", "/home/me/.cache"), ("/c", "/c")):
        monkeypatch.setenv("XDG_CACHE_HOME", users)
        assert places.models() == Path(path) / "gemma-rigs" / "models"


def test_nobody_at_home_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", nobody)
    for key in ("GEMMA_RIGS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(key, raising=False)
    with pytest.raises(RigError, match="no home folder; set GEMMA_RIGS_CACHE"):
        places.cache()
