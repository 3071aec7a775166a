"""Hubs that resume oddly or say odd numbers, parts that are no files, and where a token may go."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from common import places
from common.files import hub
from common.files.hub import PIECE
from common.rig import Rig
from scripts import fetch
from tests.conftest import Run
from tests.files.fetching import DRAFTER, TOKEN, digest_of, drafter
from tests.helpers import fake_hub as fake
from tests.helpers.fake_hub import FakeHub

ODD_RESUMES: dict[str, fake.Answer] = {
    "another range": fake.other_range,
    "no range": fake.in_part(None),
    "nonsense": fake.in_part("bytes \xb2-9/300000"),
    "of another length": fake.in_part(f"bytes {PIECE}-9/7"),
    "416": fake.status(416),
}


@pytest.mark.parametrize("case", ODD_RESUMES)
def test_a_hub_that_resumes_oddly_is_begun_again(
    case: str, run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    fake_hub.gets = [fake.cut(PIECE), ODD_RESUMES[case]]
    code, out, _err = run(fetch.body, hub_rig, "draft")
    assert code == 0
    assert fake_hub.ranges() == [None, f"bytes={PIECE}-", None]
    assert drafter() == fake_hub.content
    assert "from the start" in out
    assert len(waits) == 2


def test_the_unit_of_a_range_may_be_written_large(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    fake_hub.gets = [fake.cut(PIECE), fake.in_part(f"Bytes {PIECE}-299999/300000", PIECE)]
    assert run(fetch.body, hub_rig, "draft")[0] == 0
    assert fake_hub.ranges() == [None, f"bytes={PIECE}-"]
    assert drafter() == fake_hub.content
    assert waits == [1.0]


@pytest.mark.parametrize("digits", ["\xb2", "-1", "9" * 5000, "1.5"])
def test_numbers_in_headers_that_are_none(
    digits: str, run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    fake_hub.gets = [fake.with_length(digits)]
    assert run(fetch.body, hub_rig, "draft")[0] == 0
    assert drafter() == fake_hub.content
    (places.models() / DRAFTER).unlink()
    fake_hub.gets = [fake.status(429, Retry_After=digits)]
    code, _out, err = run(fetch.body, hub_rig, "draft")
    if digits.isdecimal():
        assert "asks to wait" in err
        assert err.count("\n") == 1
    else:
        assert code == 0
        assert waits == [1.0]


@pytest.mark.parametrize("size", ["\xb2", "-5", "0", "9" * 18, "9" * 5000, "1.5", ""])
def test_a_size_that_is_none(size: str, run: Run, hub_rig: Rig, fake_hub: FakeHub) -> None:
    def answer(to: fake.Handler) -> None:
        to.head(200, {**to.about(), "X-Linked-Size": size, "Content-Length": 0})

    fake_hub.heads = [answer]
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert fake_hub.ranges() == []


def test_a_wait_of_nothing_is_still_a_wait(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    fake_hub.gets = [fake.status(429, Retry_After="0")] * 3
    assert run(fetch.body, hub_rig, "draft")[0] == 0
    assert waits == [1.0, 2.0, 4.0]


def lay_link(part: Path, other: Path) -> None:
    part.symlink_to(other)


def lay_dangling_link(part: Path, other: Path) -> None:
    part.symlink_to(other.with_name("new"))


def lay_second_name(part: Path, other: Path) -> None:
    part.hardlink_to(other)


def lay_pipe(part: Path, _other: Path) -> None:
    os.mkfifo(part)


@pytest.mark.parametrize("lay", [lay_link, lay_dangling_link, lay_second_name, lay_pipe])
def test_a_part_that_is_another_file_is_not_written_through(
    lay: Callable[[Path, Path], None], run: Run, hub_rig: Rig, fake_hub: FakeHub, tmp_path: Path
) -> None:
    other = tmp_path / "precious"
    other.write_bytes(b"precious")
    part = places.models() / f"{DRAFTER}.{digest_of(fake_hub.content)[:16]}.part"
    lay(part, other)
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert f"{part} is" in err
    assert "not written to; remove it" in err
    assert err.count("\n") == 1
    assert other.read_bytes() == b"precious"
    assert not (tmp_path / "new").exists()
    part.unlink()
    assert run(fetch.body, hub_rig, "draft")[0] == 0


@pytest.mark.parametrize(
    "address", ["http://hub.example", "http://10.0.0.7:80", "http://[fe80::1]"]
)
def test_a_token_does_not_go_out_unencrypted(
    address: str, run: Run, hub_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(
        "huggingface_hub.get_hf_file_metadata", lambda *_a, **_k: pytest.fail("asked")
    )
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert "HF_TOKEN would go to" in err
    assert "unencrypted and was not sent; use https://" in err
    assert TOKEN not in err


@pytest.mark.parametrize(
    "address", ["https://hub.example", "http://127.0.0.9:80", "http://[::1]:9"]
)
def test_a_token_goes_out_encrypted_or_stays_here(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert hub.token() == TOKEN
