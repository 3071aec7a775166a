"""Each fault of a server, a full disk, a killed process: what is said, and how it goes on."""

import contextlib
import fcntl
import os
import pty
import resource
import signal
import struct
import termios
import time
from email.utils import formatdate
from pathlib import Path

# Loaded before a test sets HF_DEBUG, which it would keep for all tests after that one.
import huggingface_hub.file_download  # noqa: F401
import pytest

from common import places
from common.errors import RigError
from common.files import hub, wanted
from common.files.hub import PIECE
from common.rig import Rig
from scripts import fetch
from tests.conftest import Run
from tests.files.fetching import DRAFTER, TOKEN, drafter, in_folder, script, until
from tests.helpers import fake_hub as fake
from tests.helpers.fake_hub import FakeHub


def test_a_cut_connection_is_resumed(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    fake_hub.gets = [fake.cut(2 * PIECE), fake.cut(PIECE)]
    code, out, err = run(fetch.body, hub_rig, "draft")
    assert (code, err) == (0, "")
    assert fake_hub.ranges() == [None, f"bytes={2 * PIECE}-", f"bytes={3 * PIECE}-"]
    assert drafter() == fake_hub.content
    assert "the connection broke" in out
    assert waits == [1.0, 1.0]  # each brought bytes, so neither counts as a second failure


def test_a_connection_that_always_breaks_is_given_up_and_goes_on_next_time(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    fake_hub.gets = [fake.cut(PIECE)] + [fake.cut(0)] * (hub.TRIES - 1)
    code, out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "it goes on from what has come" in err
    assert not fake_hub.gets
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0]
    code, out, _err = run(fetch.body, hub_rig, "draft")
    assert code == 0
    assert fake_hub.ranges()[-1] == f"bytes={PIECE}-"
    assert drafter() == fake_hub.content
    assert "trying again" not in out


def test_a_server_that_ignores_ranges(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    fake_hub.gets = [fake.cut(2 * PIECE), fake.without_ranges(PIECE), fake.without_ranges(300_000)]
    assert run(fetch.body, hub_rig, "draft")[0] == 0
    assert fake_hub.ranges() == [None, f"bytes={2 * PIECE}-", f"bytes={PIECE}-"]
    assert drafter() == fake_hub.content
    assert len(waits) == 2


def test_an_ignoring_server_that_always_breaks_is_given_up(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    fake_hub.gets = [fake.without_ranges(PIECE)] * 20
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert "times in a row" in err
    assert len(waits) == hub.TRIES - 1


# A fault, and words of the one line that is said about it: what happened, and what to do.
FAULTS: dict[str, tuple[dict[str, list[fake.Answer]], str, str]] = {
    "other length": (
        {"gets": [fake.of_length(1000)]},
        "declares 300,000 bytes",
        "SPEC_DRAFT_HF_REVISION",
    ),
    "too long": ({"gets": [fake.endless(400_000)]}, "a file of another length", "HF_ENDPOINT"),
    "a part unasked": (
        {"gets": [fake.in_part("bytes 5-9/300000")]},
        "another part of the file",
        "HF_ENDPOINT",
    ),
    "page for the file": ({"gets": [fake.page]}, "a web page instead of the file", "HF_ENDPOINT"),
    "page for everything": (
        {"heads": [fake.page], "gets": [fake.page]},
        "a web page instead",
        "HF_ENDPOINT",
    ),
    "401": ({"heads": [fake.status(401)]}, "answered 401", "set HF_TOKEN (HF_TOKEN is not set)"),
    "401 later": ({"gets": [fake.status(401)]}, "answered 401", "set HF_TOKEN"),
    "403": ({"heads": [fake.status(403)]}, "answered 403", "check SPEC_DRAFT_HF"),
    "403 later": ({"gets": [fake.status(403)]}, "answered 403", "check SPEC_DRAFT_HF"),
    "gated": (
        {"heads": [fake.status(403, X_Error_Code="GatedRepo")]},
        "answered 403",
        "accept its terms",
    ),
    "404": ({"heads": [fake.status(404)]}, "answered 404", "SPEC_DRAFT_MODEL"),
    "no such file": (
        {"heads": [fake.status(404, X_Error_Code="EntryNotFound")]},
        "no such file",
        "check SPEC_DRAFT_MODEL",
    ),
    "no such revision": (
        {"heads": [fake.status(404, X_Error_Code="RevisionNotFound")]},
        "the revision main is not there",
        "check SPEC_DRAFT_HF_REVISION",
    ),
    "410": ({"gets": [fake.status(410)]}, "answered 410", "HF_ENDPOINT"),
    "500": ({"heads": [fake.status(500)] * 6}, "answered 500, 6 times", "later"),
    "500 later": ({"gets": [fake.status(500)] * 6}, "answered 500, 6 times", "later"),
    "429 for an hour": (
        {"gets": [fake.status(429, Retry_After="3600")]},
        "asks to wait 3600 s",
        "Run this again",
    ),
    "redirects of the question": ({"heads": [fake.loop]}, "too many redirects", "HF_ENDPOINT"),
    "redirects of the file": ({"gets": [fake.loop]}, "too many redirects", "HF_ENDPOINT"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_with_the_fix(
    fault: str, run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    answers, happened, fix = FAULTS[fault]
    fake_hub.heads = list(answers.get("heads", []))
    fake_hub.gets = list(answers.get("gets", []))
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert happened in err
    assert fix in err
    assert DRAFTER not in in_folder()
    assert len(waits) < hub.TRIES
    # What was left behind does not harm the next try.
    fake_hub.heads.clear()
    fake_hub.gets.clear()
    assert run(fetch.body, hub_rig, "draft")[0] == 0
    assert drafter() == fake_hub.content


def test_429_is_waited_for_as_asked(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    in_a_minute = formatdate(time.time() + 60, usegmt=True)
    fake_hub.heads = [fake.status(429, Retry_After="7")]
    fake_hub.gets = [
        fake.status(429, Retry_After=in_a_minute),
        fake.status(429, Retry_After="soon"),
    ]
    code, out, _err = run(fetch.body, hub_rig, "draft")
    assert code == 0
    assert waits[0] == 7.0
    assert 30 < waits[1] <= 60
    assert waits[2] == 2.0  # no sense in it, so our own: the second failure in a row
    assert "trying again in 7 s" in out


def test_a_glance_is_one_try(hub_rig: Rig, fake_hub: FakeHub, waits: list[float]) -> None:
    (file, _drafter) = wanted.wanted(hub_rig)
    assert hub.glance(file.on_hub).size == fake_hub.size
    fake_hub.heads = [fake.status(503)]
    with pytest.raises(RigError, match="503"):
        hub.glance(file.on_hub)
    assert waits == []


def test_a_silent_server_is_not_waited_for_without_end(
    run: Run,
    hub_rig: Rig,
    fake_hub: FakeHub,
    waits: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub, "TIMEOUT_S", (1.0, 0.2))
    fake_hub.gets = [fake.held(PIECE)]
    code, out, _err = run(fetch.body, hub_rig, "draft")
    assert code == 0
    assert "no connection" in out
    assert fake_hub.ranges()[-1] == f"bytes={PIECE}-"
    assert drafter() == fake_hub.content
    assert len(waits) == 1


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://127.0.0.1:1",
        "hub.example",
        "http://u:p@127.0.0.1",
        "http://[::1",
        "http://hub.example:99999",
        "https://:443",
    ],
)
def test_an_endpoint_that_is_none(
    endpoint: str, run: Run, hub_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert err.count("\n") == 1
    assert "HF_ENDPOINT" in err
    assert "u:p" not in err


def test_a_repository_name_that_is_none(
    run: Run, hub_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEC_DRAFT_HF", "a/b/c")
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert "SPEC_DRAFT_HF" in err
    assert err.count("\n") == 1


def test_a_disk_that_fills_while_writing(hub_rig: Rig, fake_hub: FakeHub, run: Run) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    filling = script("fetch draft", hub_rig, limit)
    _out, err = filling.communicate()
    assert filling.returncode == 1
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "cannot be written: File too large; what has come is kept there. Make room" in err
    [part] = in_folder()
    assert (places.models() / part).stat().st_size == 100_000
    assert run(fetch.body, hub_rig, "draft")[0] == 0
    assert fake_hub.ranges() == [None, "bytes=100000-"]
    assert drafter() == fake_hub.content


def test_a_killed_download_goes_on(hub_rig: Rig, fake_hub: FakeHub, run: Run) -> None:
    fake_hub.gets = [fake.held(3 * PIECE)]
    killed = script("fetch draft", hub_rig)
    until(lambda: any((places.models() / name).stat().st_size == 3 * PIECE for name in in_folder()))
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert DRAFTER not in in_folder()
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert (code, err) == (0, "")
    assert fake_hub.ranges() == [None, f"bytes={3 * PIECE}-"]
    assert drafter() == fake_hub.content
    assert in_folder() == {DRAFTER}


def test_a_terminal_sees_progress(hub_rig: Rig) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    process = script("fetch draft", hub_rig, stderr=theirs)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal says that the other side is closed
        while piece := os.read(ours, 4096):
            shown += piece
    os.close(ours)
    process.communicate()
    assert process.returncode == 0
    assert DRAFTER in shown.decode()
    assert "300k" in shown.decode()


def test_the_token_goes_to_the_hub_alone(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_DEBUG", "1")  # the hub's client then says all it does
    monkeypatch.setenv("HOME", str(tmp_path))
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login other password other\n")
    netrc.chmod(0o600)
    with FakeHub(fake_hub.content) as store:
        fake_hub.elsewhere = store.url
        store.gets = [fake.cut(PIECE), fake.status(403)]
        process = script("fetch draft", hub_rig)
        out, err = process.communicate()
        assert process.returncode == 1
        assert "answered 403" in err
        assert "HF_TOKEN is set but not accepted" in err
        code, more_out, more_err = run(fetch.body, hub_rig, "draft")
        assert code == 0
        out, err = out + more_out, err + more_err
        assert drafter() == fake_hub.content
        assert len(store.seen) == 3
        assert [headers for _m, _p, headers in store.seen if TOKEN in str(headers)] == []
    assert {headers.get("authorization") for _m, _p, headers in fake_hub.seen} == {
        f"Bearer {TOKEN}"
    }
    assert TOKEN not in out + err
    assert "secret-signature" not in out + err
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(left) > 3
    assert [path for path in left if TOKEN.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("fault", [fake.status(401), fake.status(500), fake.page, fake.loop])
def test_no_fault_says_the_token(
    fault: fake.Answer,
    run: Run,
    hub_rig: Rig,
    fake_hub: FakeHub,
    waits: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    fake_hub.gets = [fault] * hub.TRIES
    code, out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert len(waits) in (0, hub.TRIES - 1)
    assert TOKEN in str(fake_hub.seen)
    assert TOKEN not in out + err


def test_a_token_that_is_none_is_not_shown(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}\n{TOKEN}")
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert "HF_TOKEN holds a space" in err
    assert TOKEN not in err
    assert fake_hub.seen == []
