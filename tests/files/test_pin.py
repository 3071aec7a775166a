"""Pinning: what is written into tpu.env, and that nothing else in it changes."""

import os
from pathlib import Path

import pytest

from common import digest, env_file, places, rig
from common.engines.llamacpp import build
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.rig import Rig
from scripts import pin as pin_script
from tests.conftest import Run
from tests.helpers import fake_hub as fake
from tests.helpers.fake_hub import FakeHub


def test_pin_writes_digest_and_revision_and_nothing_else(
    run: Run, hub_rig: Rig, fake_hub: FakeHub
) -> None:
    path = hub_rig.folder / "tpu.env"
    path.chmod(0o640)
    before = path.read_text()
    code, _out, err = run(pin_script.body, hub_rig)
    assert (code, err) == (0, "")
    expected = (
        before.replace("MODEL_HF_REVISION=\n", f"MODEL_HF_REVISION={fake.COMMIT}\n")
        .replace("MODEL_SHA256=\n", f"MODEL_SHA256={fake_hub.declared}\n")
        .replace(
            f"SPEC_DRAFT_SHA256={str(fake_hub.declared)[:16]}\n",
            f"SPEC_DRAFT_SHA256={fake_hub.declared}\n",
        )
        # This one was not in the file: it goes below the drafter's last setting.
        .replace("N_MAX=2\n", f"N_MAX=2\nSPEC_DRAFT_HF_REVISION={fake.COMMIT}\n")
    )
    assert path.read_text() == expected
    assert path.stat().st_mode & 0o777 == 0o640
    assert rig.load(hub_rig.folder).spec_draft_hf_revision == fake.COMMIT
    assert [entry.name for entry in hub_rig.folder.iterdir()] == ["tpu.env"]

    asked = len(fake_hub.seen)
    code, out, _err = run(pin_script.body, hub_rig)
    assert code == 0
    assert out.count("pinned already") == 2
    assert len(fake_hub.seen) == asked
    assert path.read_text() == expected


def test_a_file_that_is_not_what_the_hub_has_is_not_pinned(
    run: Run, hub_rig: Rig, fake_hub: FakeHub
) -> None:
    path = hub_rig.folder / "tpu.env"
    before = path.read_bytes()
    (places.models() / hub_rig.model).write_bytes(b"GGUF, by hand")
    code, _out, err = run(pin_script.body, hub_rig)
    assert code == 1
    assert f"someone/target-gguf at main declares {fake_hub.declared}" in err
    assert "set MODEL_HF_REVISION to where it came from, or move it away" in err
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "commit", ["main", "0" * 39, "0" * 41, "A" * 40, f"{fake.COMMIT} $(touch F)", f"`{'0' * 38}`"]
)
def test_a_commit_that_is_none_is_never_written(
    commit: str, run: Run, hub_rig: Rig, fake_hub: FakeHub
) -> None:
    fake_hub.commit = commit
    before = (hub_rig.folder / "tpu.env").read_bytes()
    code, _out, err = run(pin_script.body, hub_rig)
    assert code == 1
    assert "of commit unknown" in err
    assert err.count("\n") == 1
    assert (hub_rig.folder / "tpu.env").read_bytes() == before
    recorded = digest.recorded(places.models() / hub_rig.model)
    assert recorded
    assert recorded["revision"] is None
    asked = [path for _method, path, _headers in fake_hub.seen]
    assert all("/resolve/main/" in path for path in asked)


def test_pin_writes_all_digits_of_a_short_commit(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = "77c4540ce" + "0" * 31
    info = {"source": {"commit": whole}}
    monkeypatch.setattr(build, "find", lambda _rig: Engine(Path("llama-server"), info))
    path = hub_rig.folder / "tpu.env"
    path.write_text(path.read_text() + "LLAMA_CPP_COMMIT=77c4540ce\n")
    code, out, err = run(pin_script.body, hub_rig)
    assert (code, err) == (0, "")
    assert f"{path}: LLAMA_CPP_COMMIT={whole}\n" in out
    assert "built anew; run make compose in the project's folder" in out
    assert path.read_text().endswith(f"\nLLAMA_CPP_COMMIT={whole}\n")
    assert rig.load(hub_rig.folder).model_sha256 == fake_hub.declared
    before = path.read_bytes()
    assert "LLAMA_CPP_COMMIT" not in run(pin_script.body, hub_rig)[1]
    assert path.read_bytes() == before


def test_a_repository_out_of_reach_leaves_the_files_pinned(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, tmp_path: Path
) -> None:
    path = hub_rig.folder / "tpu.env"
    more = f"LLAMA_CPP_COMMIT=77c4540ce\nLLAMA_CPP_REPOSITORY=file://{tmp_path}/none\n"
    path.write_text(path.read_text() + more)
    code, out, err = run(pin_script.body, hub_rig)
    assert code == 1
    assert err.startswith(
        f"error: LLAMA_CPP_COMMIT stays 77c4540ce: commit 77c4540ce of file://{tmp_path}/none: "
    )
    assert err.count("\n") == 1
    assert f"MODEL_SHA256={fake_hub.declared}" in out
    assert rig.load(hub_rig.folder).model_sha256 == fake_hub.declared
    assert more in path.read_text()


def test_a_file_without_a_source_is_pinned_by_digest(
    run: Run, hub_rig: Rig, fake_hub: FakeHub
) -> None:
    path = hub_rig.folder / "tpu.env"
    path.write_text(path.read_text().replace("MODEL_HF=someone/target-gguf", "MODEL_HF="))
    (places.models() / hub_rig.model).write_bytes(fake_hub.content)
    assert run(pin_script.body, hub_rig)[0] == 0
    pinned = rig.load(hub_rig.folder)
    assert pinned.model_sha256 == fake_hub.declared
    assert pinned.model_hf_revision is None


def test_a_setting_from_the_environment_is_not_pinned(
    run: Run, hub_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPEC_DRAFT_HF", "else/drafter-gguf")
    code, _out, err = run(pin_script.body, hub_rig)
    assert code == 1
    assert "SPEC_DRAFT_HF comes from the environment" in err


def test_the_known_answer_pair_has_nothing_to_pin(run: Run, tiny: Rig) -> None:
    before = (tiny.folder / "tpu.env").read_bytes()
    code, out, _err = run(pin_script.body, tiny)
    assert code == 0
    assert out.count("nothing to pin") == 2
    assert (tiny.folder / "tpu.env").read_bytes() == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# a\nMODEL_SHA256=\nPORT=1\n", "# a\nMODEL_SHA256=12\nPORT=1\n"),
        ("# MODEL_SHA256=x\r\nMODEL_SHA256=x\r\n", "# MODEL_SHA256=x\r\nMODEL_SHA256=12\r\n"),
        ("MODEL=a\n\n# b\nPORT=1\n", "MODEL=a\nMODEL_SHA256=12\n\n# b\nPORT=1\n"),
        ("PORT=1\nMODEL=a", "PORT=1\nMODEL=a\nMODEL_SHA256=12\n"),
        ("MODEL_SHA256=x", "MODEL_SHA256=12"),
        ("", "MODEL_SHA256=12\n"),
    ],
)
def test_rewrite(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "tpu.env"
    path.write_bytes(before.encode())
    env_file.rewrite(path, {"MODEL_SHA256": "12"})
    assert path.read_bytes() == after.encode()


def test_a_full_disk_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "tpu.env"
    path.write_text("MODEL=a\n")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RigError, match="No space left on device; it is as it was"):
        env_file.rewrite(path, {"MODEL": "b"})
    assert path.read_text() == "MODEL=a\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["tpu.env"]
