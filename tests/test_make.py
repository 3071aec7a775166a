"""What a user types: the targets of every rig and of the root."""

import shutil
from pathlib import Path

import pytest

from common import rig
from common.rig import ROOT
from tests import rig_rules

RIGS = sorted(folder.name for folder in rig.all_rigs())
NOW = [
    *["help", "show", "serve", "stop", "status", "draft", "model", "pin", "files", "image"],
    *["speed", "longctx", "sweep", "longmixed", "map", "accuracy", "identity", "rescore", "report"],
    *["repack", "formats", "cost", "builds", "tune", "mcp"],
]


def make(*arguments: str, **environment: str) -> tuple[int, str, str]:
    return rig_rules.make(ROOT, *arguments, **environment)


@pytest.mark.parametrize("name", RIGS)
def test_help_names_every_target(name: str) -> None:
    rig_rules.help_names(ROOT, name, NOW)


@pytest.mark.parametrize("name", RIGS)
def test_show(name: str) -> None:
    code, out, _err = make("-C", name, "show")
    assert code == 0
    assert "llama-server -m " in out


def test_the_command_line_beats_the_file() -> None:
    _code, out, _err = make("-C", RIGS[0], "show", "PORT=9123")
    assert "--port 9123" in out
    assert "# PORT comes from the environment" in out


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this host has an NVIDIA card")
@pytest.mark.parametrize("runner", ["host", "docker"])
def test_a_gpu_rig_without_a_card_says_so_before_any_download(tmp_path: Path, runner: str) -> None:
    cache = str(tmp_path / "cache")
    code, out, err = make(
        "-C", "local-llamacpp-3050oem-4b-q4_0", "speed", GEMMA_RIGS_CACHE=cache, RUNNER=runner
    )
    assert code == 2  # make's code for a recipe that failed
    assert "is for the card RTX_3050, but no NVIDIA card can be used on this host" in err
    assert "fetching" not in out
    assert not Path(cache).exists()


def test_report_needs_a_run() -> None:
    code, _out, err = make("report")
    assert code == 2
    assert "RUN=" in err
    code, _out, err = make("report", "RUN=docs")
    assert "not a run directory" in err


@pytest.mark.parametrize("name", RIGS)
def test_a_rig_is_only_data(name: str) -> None:
    rig_rules.is_only_data(ROOT / name)
