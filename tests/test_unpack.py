import io
import tarfile
from pathlib import Path

import pytest

from common.unpack import unpack


@pytest.fixture(params=["with filters", "without"])
def _python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that knows filters, and one that does not."""
    if request.param == "without":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has no filters")


def archive(*members: tarfile.TarInfo) -> tarfile.TarFile:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as made:
        for member in members:
            member.size = 1 if member.isreg() else 0
            made.addfile(member, io.BytesIO(b"x"))
    whole.seek(0)
    return tarfile.open(fileobj=whole)


def plain(name: str, mode: int = 0o644) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.mode = mode
    return member


def link(name: str, to: str) -> tarfile.TarInfo:
    member = plain(name)
    member.type, member.linkname = tarfile.SYMTYPE, to
    return member


@pytest.mark.usefixtures("_python")
def test_files_keep_who_may_run_them(tmp_path: Path) -> None:
    unpack(archive(plain("a/run", 0o4755), plain("a/b/text", 0o666)), tmp_path / "out")
    modes = {
        path.name: path.stat().st_mode & 0o7755
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert modes == {"run": 0o755, "text": 0o644}


@pytest.mark.usefixtures("_python")
@pytest.mark.parametrize(
    "members",
    [
        (plain("../beside"),),
        (plain("a/../../beside"),),
        (link("a", ".."), plain("a/beside")),
        (link("a", "/etc"),),
    ],
)
def test_nothing_lands_outside(members: tuple[tarfile.TarInfo, ...], tmp_path: Path) -> None:
    with pytest.raises((tarfile.TarError, ValueError)):
        unpack(archive(*members), tmp_path / "out")
    assert not (tmp_path / "beside").exists()


def test_an_absolute_name_lands_inside_or_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    with pytest.raises(ValueError, match="no plain file"):
        unpack(archive(plain(str(tmp_path / "beside"))), tmp_path / "out")
    assert not (tmp_path / "beside").exists()
