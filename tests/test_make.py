"""What a user types: the targets of every rig and of the root."""

import shutil
from pathlib import Path

import pytest

from common import rig
from common.rig import ROOT
from scripts import compare
from tests.helpers import rig_rules

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
    assert "# from the environment, not from tpu.env: PORT=9123" in out


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


# One word to a program, whatever a shell would make of it.
ODD = 'x y; touch {made}; `touch {made}` \'"; touch {made} # " *'
TINY = "local-llamacpp-cpu-tiny-q4_0"
AT_ROOT = [
    *[(verb, "RIG") for verb in ("engine", "bench-repack", "doctor", "bench-client")],
    *[("report", "RUN"), ("compare", "RUNS"), ("compare", "OUT")],
    *[("new-rig", key) for key in ("SIZE", "ENCODING", "GPU")],
]


@pytest.fixture
def arguments(tmp_path: Path) -> str:
    """A Python that only says what it is asked to run, a line an argument."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nprintf '<%s>\\n' \"$@\"\n")
    program.chmod(0o755)
    return str(program)


def is_one_word(key: str, made: Path, python: str, *line: str) -> str:
    """What make said. The value reached the program whole, and no shell ran it."""
    value = ODD.format(made=made)
    python_is = [f"PYTHON={python}", f"BASE_PYTHON={python}"]
    for given, environment in ((f"{key}={value}", {}), ("A=", {key: value})):
        _code, out, err = make(*line, *python_is, given, **environment)
        assert not made.exists()
        assert value in out + err
    return out


@pytest.mark.parametrize(("verb", "key"), AT_ROOT)
def test_a_value_is_one_word_to_every_target(
    tmp_path: Path, arguments: str, verb: str, key: str
) -> None:
    out = is_one_word(key, tmp_path / "made", arguments, verb)
    assert f"<{ODD.format(made=tmp_path / 'made')}>\n" in out


@pytest.mark.parametrize("verb", ["image", "use"])
def test_a_rig_is_one_word_to_shell_scripts(tmp_path: Path, arguments: str, verb: str) -> None:
    is_one_word("RIG", tmp_path / "made", arguments, verb)


@pytest.mark.parametrize("runner", ["host", "docker"])
@pytest.mark.parametrize("verb", ["report", "rescore"])
def test_a_run_is_one_word_to_the_targets_of_a_rig(
    tmp_path: Path, arguments: str, monkeypatch: pytest.MonkeyPatch, verb: str, runner: str
) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    is_one_word("RUN", tmp_path / "made", arguments, "-C", TINY, verb, f"RUNNER={runner}")


def test_the_folder_says_which_rig_it_is(tmp_path: Path) -> None:
    code, out, _err = make("-C", TINY, "show", f"RIG=x; touch {tmp_path / 'made'}")
    assert code == 0
    assert "known-answer-tiny" in out
    assert not (tmp_path / "made").exists()


def test_compare_takes_several_runs() -> None:
    assert compare.folders("a 'b c'") == [Path("a"), Path("b c")]
    code, _out, err = make("compare", "RUNS=nowhere/a nowhere/b")
    assert code == 2
    assert "nowhere/a is not a run directory" in err
