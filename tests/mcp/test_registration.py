"""What make mcp writes for the client, and sessions that need no engine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from common import rig
from common.errors import RigError
from common.mcp import registration
from common.rig import ROOT, Rig
from tests.mcp.client import client


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def servers(home: Path) -> dict[str, Any]:
    return dict(json.loads((home / registration.FILE).read_text())["mcpServers"])


def test_others_stay_and_the_rigs_own_is_replaced(tiny: Rig, home: Path) -> None:
    file = home / registration.FILE
    other = {"command": "other", "args": ["ü"], "env": {"KEY": "1"}}
    file.write_text(json.dumps({"mcpServers": {"other": other, tiny.name: {}}, "more": [1]}))
    file.chmod(0o640)
    assert registration.write(tiny, "host", home) == file
    assert servers(home)["other"] == other
    assert servers(home)[tiny.name] == registration.entry(tiny, "host")
    assert json.loads(file.read_text())["more"] == [1]
    assert file.stat().st_mode & 0o777 == 0o640
    before = file.read_bytes()
    registration.write(tiny, "host", home)
    assert file.read_bytes() == before
    assert [path.name for path in home.iterdir()] == [registration.FILE]


@pytest.mark.parametrize(
    "content", [b"{", b"", b"[]", b"\xff", b'{"mcpServers": []}', b'{"mcpServers": {"a": 1},}']
)
def test_a_file_that_is_damaged_is_refused_and_kept(tiny: Rig, home: Path, content: bytes) -> None:
    (home / registration.FILE).write_bytes(content)
    with pytest.raises(RigError, match="it is left as it is"):
        registration.write(tiny, "host", home)
    assert (home / registration.FILE).read_bytes() == content
    assert len(list(home.iterdir())) == 1


def test_a_link_stays_a_link(tiny: Rig, home: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text("{}")
    (home / registration.FILE).symlink_to(real)
    registration.write(tiny, "host", home)
    assert (home / registration.FILE).is_symlink()
    assert tiny.name in json.loads(real.read_text())["mcpServers"]


def test_settings_in_force_are_written_but_no_token(
    tiny: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("MODELS_DIR", "models")
    monkeypatch.setenv("LONGCTX_DOC", "story.txt")
    found = registration.entry(rig.load(tiny.folder), "host")
    assert found["env"]["PORT"] == str(tiny.port)
    for key, name in (("MODELS_DIR", "models"), ("LONGCTX_DOC", "story.txt")):
        assert found["env"][key] == str(Path(name).absolute())
    assert "hf_secret" not in json.dumps(found)


def test_in_docker_the_host_needs_no_python(tiny: Rig) -> None:
    found = registration.entry(tiny, "docker")
    assert found["command"] == "env"
    script = str(ROOT / "scripts" / "in_docker.sh")
    assert found["args"] == ["-C", str(tiny.folder), script, "mcp_server.py", tiny.name]


def test_it_needs_no_package(tiny: Rig, home: Path) -> None:
    """A host that runs rigs in Docker has a bare Python, if any."""
    line = "import sys; from pathlib import Path; from common import rig; "
    line += "from common.mcp import registration; "
    line += "registration.write(rig.load(Path(sys.argv[1])), 'docker', Path(sys.argv[2]))"
    subprocess.run(
        [sys.executable, "-S", "-c", line, str(tiny.folder), str(home)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert tiny.name in servers(home)


def test_a_client_can_start_what_was_written(
    tiny: Rig, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))
    registration.write(tiny, "host", home)
    written = servers(home)[tiny.name]
    command = [written["command"], *written["args"]]
    with client(command, written["env"], tmp_path / "log") as session:
        assert session.name == tiny.name
        assert session.call("server_status")["address"] == f"{tiny.url}/v1"


def test_a_download_tells_its_bytes(hub_rig: Rig, tmp_path: Path) -> None:
    environment = {key: os.environ[key] for key in ("MODELS_DIR", "HF_ENDPOINT")}
    environment |= {"GEMMA_RIGS_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "scripts" / "mcp_server.py"), str(hub_rig.folder)]
    with client(command, environment, tmp_path / "log") as session:
        found = session.call("fetch_files", which="drafter")
        told = [done for done, total, _text in session.progress if total == 300_000]
        assert told == sorted(told)
        assert told[-1] == 300_000
        states = {file["role"]: file for file in found["files"]}
        assert states["drafter"]["state"] == "as published, by its first digits (make pin)"
        assert states["model"]["here"] is False
