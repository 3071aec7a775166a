"""What a user types: the targets of every rig and of the root."""

import re
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
ODD = (
    'x y; touch {made}; `touch {made}` \'"; touch {made} # " * '
    "$(touch {made}) $(shell touch {made}) $${{HOME}}"
)
TINY = "local-llamacpp-cpu-tiny-q4_0"
AT_ROOT = [
    *[(verb, "RIG") for verb in ("engine", "bench-repack", "doctor", "bench-client")],
    *[("report", "RUN"), ("compare", "RUNS"), ("compare", "OUT")],
    *[("new-rig", key) for key in ("SIZE", "ENCODING", "GPU")],
    *[("first-runs", key) for key in ("MINUTES", "GPU")],
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


OF_MAKE = {"MAKE", "PWD", "VARIABLES"}
# lint takes nothing from outside and needs seconds; test-docker and others only differ in words.
NOT_TRIED = {"lint"}


def names(*files: str) -> list[str]:
    """Every variable that these make files mention."""
    text = "".join((ROOT / file).read_text() for file in (*files, "common/given.mk"))
    found = set(re.findall(r"\$\$?[({]?([A-Z][A-Z_]+)", text))
    found |= set(re.findall(r"^(?:override |export )*([A-Z][A-Z_]+) *[:?]?=", text, re.MULTILINE))
    return sorted((found | {"PORT"}) - OF_MAKE)


def targets(file: str) -> list[str]:
    text = (ROOT / file).read_text()
    return sorted(set(re.findall(r"^([a-z-]+):(?!=)", text, re.MULTILINE)) - NOT_TRIED)


@pytest.fixture
def harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that targets start, doing nothing."""
    for name in ("docker", "uv", "nvidia-smi"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def runs_nothing(name: str, made: Path, python: str, *line: str, **environment: str) -> None:
    value = ODD.format(made=made)
    stands = [f"{key}={python}" for key in ("PYTHON", "BASE_PYTHON") if key != name]
    make("-k", *line, *stands, f"{name}={value}", **environment)
    assert not made.exists()
    if name not in ("PYTHON", "BASE_PYTHON"):  # those of the environment would be real ones
        make("-k", *line, *stands, **{**environment, name: value})
        assert not made.exists()


@pytest.mark.usefixtures("harmless")
@pytest.mark.parametrize("name", names("Makefile"))
def test_no_variable_reaches_a_shell_at_the_root(tmp_path: Path, arguments: str, name: str) -> None:
    runs_nothing(name, tmp_path / "made", arguments, *targets("Makefile"))


@pytest.mark.usefixtures("harmless")
@pytest.mark.parametrize("name", names("common/rig.mk"))
def test_no_variable_reaches_a_shell_in_a_rig(tmp_path: Path, arguments: str, name: str) -> None:
    every = [*targets("common/rig.mk"), "speed", "longctx"]
    runs_nothing(name, tmp_path / "made", arguments, "-C", TINY, *every)
    few = ["show", "serve", "report", "speed"]
    runs_nothing(name, tmp_path / "made", arguments, "-C", TINY, *few, RUNNER="docker")


@pytest.mark.parametrize("place", ["a b", "it's", "a$b", "a(b)", 'say "x"', "a;b&c", "a#b"])
@pytest.mark.usefixtures("harmless")
def test_any_path_of_the_project_will_do(tmp_path: Path, arguments: str, place: str) -> None:
    tree = tmp_path / place
    for folder in ("common", "scripts", TINY):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("runs"))
    stands = [f"PYTHON={arguments}", f"BASE_PYTHON={arguments}"]
    for runner in ("host", "docker"):
        code, out, err = rig_rules.make(tree, "-C", TINY, "help", RUNNER=runner)
        assert (code, err) == (0, "")
        assert f"{TINY}: make TARGET." in out
        assert "  speed " in out
    code, out, err = rig_rules.make(tree, "-C", TINY, "show", *stands, RUNNER="host")
    assert (code, err) == (0, "")
    assert f"<../scripts/show.py>\n<{TINY}>\n" in out
    code, out, err = rig_rules.make(tree, "-C", TINY, "serve", RUNNER="docker")
    assert (code, err) == (0, "")


def test_another_package_of_our_name_is_not_taken(tmp_path: Path) -> None:
    other = tmp_path / "common"
    other.mkdir()
    (other / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    for line in (("-C", TINY, "show"), ("doctor", "RIG=no-rig")):
        _code, out, err = make(*line, PYTHONPATH=str(tmp_path))
        assert "wrong one" not in out + err
        assert "llama-server -m" in out or "no-rig is not a rig" in err


def test_a_comment_is_no_setting(tmp_path: Path) -> None:
    tree = tmp_path / "project"
    for folder in ("common", "scripts"):
        shutil.copytree(ROOT / folder, tree / folder)
    shutil.copytree(ROOT / TINY, tree / TINY)
    file = tree / TINY / rig.FILE
    plain = file.read_text()
    for comment in ("# BACKEND=cuda", "# for a card: set BACKEND=cuda", "#\u2028BACKEND=cuda"):
        file.write_text(f"{comment}\n{plain}")
        rig_rules.runs_in_its_image(tree, TINY, False)
    card = plain.replace("BACKEND=cpu", "BACKEND=cuda")
    for text in (card, card.replace("\n", "\r\n"), "# BACKEND=cpu\n" + card):
        file.write_bytes(text.encode())
        rig_rules.runs_in_its_image(tree, TINY, True)
    file.write_text(plain.replace("BACKEND=cpu", "BACKEND='cuda'"))
    code, _out, err = rig_rules.make(tree, "-C", TINY, "show", RUNNER="")
    assert code == 2
    assert "tpu.env, line " in err
    assert len(err.splitlines()) == 1


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
