"""What `make files` says of each file."""

import pytest

from common import places
from common.rig import Rig
from scripts import fetch
from scripts import files as files_script
from scripts import pin as pin_script
from tests.conftest import Run
from tests.helpers.fake_hub import FakeHub


def listed(out: str) -> dict[str, str]:
    """File -> its line."""
    return {word: line for line in out.splitlines() for word in line.split() if "gguf" in word}


def test_files_lists_what_is_there(
    run: Run, hub_rig: Rig, fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, drafter = hub_rig.model, str(hub_rig.spec_draft_model)
    code, out, _err = run(files_script.body, hub_rig)
    assert code == 0
    assert "not here; make model brings it" in listed(out)[model]
    assert "not here; make draft brings it" in listed(out)[drafter]
    assert fake_hub.seen == []

    assert run(fetch.body, hub_rig, "draft")[0] == 0
    assert (
        "as published, by its first digits" in listed(run(files_script.body, hub_rig)[1])[drafter]
    )
    assert "verified" not in listed(run(files_script.body, hub_rig)[1])[drafter]

    run(pin_script.body, hub_rig)
    begin = str(fake_hub.declared)[:16]
    (places.models() / "x.gguf.1234.part").write_bytes(b"1")
    (places.models() / "x.gguf.1234.bad").write_bytes(b"1")
    (places.models() / "by-hand.gguf").write_bytes(b"1")
    lines = listed(run(files_script.body, hub_rig)[1])
    for name in (model, drafter):
        assert f"0.3  {begin}" in lines[name]
        assert "verified, as pinned" in lines[name]
    assert "begun" in lines["x.gguf.1234.part"]
    assert "never used" in lines["x.gguf.1234.bad"]
    assert "not of this rig; not checked" in lines["by-hand.gguf"]

    monkeypatch.setenv("MODEL", "other-2b-q4_0.gguf")
    (places.models() / "other-2b-q4_0.gguf").write_bytes(fake_hub.content[:-1] + b"\0")
    lines = listed(run(files_script.body, hub_rig)[1])
    assert "WRONG: " in lines["other-2b-q4_0.gguf"]
    assert f"checked when fetched from {hub_rig.model_hf}" in lines[model]
    monkeypatch.setenv("MODEL_SHA256", "")
    assert "no pin to check" in listed(run(files_script.body, hub_rig)[1])["other-2b-q4_0.gguf"]
