"""tpu.env: grammar, errors, the same reading in make, bash and Python (compose: tests/docker)."""

import shutil
from pathlib import Path

import pytest

from common import rig
from common.errors import RigError
from common.rig import ROOT
from tests.helpers import rig_rules

RIGS = sorted(rig.all_rigs())
NAMES = [folder.name for folder in RIGS]


@pytest.mark.parametrize("folder", RIGS, ids=NAMES)
def test_every_rig_loads_and_its_name_is_true(folder: Path) -> None:
    rig_rules.loads_under_a_true_name(folder)


def test_the_rigs_asked_for_are_here() -> None:
    wanted = {
        f"local-llamacpp-{card}-{size}-q4_0"
        for card in ("3050oem", "1650ti")
        for size in ("2b", "4b")
    }
    assert wanted | {"local-llamacpp-cpu-tiny-q4_0", "local-llamacpp-cpu-270m-q4_k_m"} <= set(NAMES)


@pytest.mark.parametrize("folder", RIGS, ids=NAMES)
def test_python_bash_and_make_read_the_same(folder: Path, tmp_path: Path) -> None:
    rig_rules.reads_the_same_in_python_bash_and_make(folder, tmp_path)


def make(
    tmp_path: Path, *changes: tuple[str, str], name: str = "local-llamacpp-cpu-tiny-q4_0"
) -> Path:
    """The tiny rig with lines replaced: pairs of (start of line, new line)."""
    folder = tmp_path / name
    folder.mkdir()
    text = (ROOT / "local-llamacpp-cpu-tiny-q4_0" / "tpu.env").read_text()
    for start, new in changes:
        lines = text.splitlines()
        assert any(line.startswith(start) for line in lines)
        text = "\n".join(new if line.startswith(start) else line for line in lines) + "\n"
    (folder / "tpu.env").write_text(text)
    return folder


def message(folder: Path, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(RigError) as caught:
        rig.load(folder, environ or {})
    return str(caught.value)


@pytest.mark.parametrize(
    ("start", "line", "words"),
    [
        ("PORT=", "PROT=8081", ["line 12", "unknown key PROT", "did you mean PORT?"]),
        ("PORT=", "HOST=127.0.0.1", ["line 12", "HOST was given already on line 11"]),
        ("PORT=", "PORT=http", ["line 12", "PORT=http", "a whole number from 1 to 65535"]),
        ("PORT=", "PORT=70000", ["a whole number from 1 to 65535"]),
        ("PORT=", "PORT = 8081", ["line 12", "is not KEY=value"]),
        ("PORT=", "PORT='8081'", ["holds a space, quote or shell character"]),
        ("PORT=", "PORT=$(id)", ["holds a space, quote or shell character"]),
        ("PORT=", "PORT=8081 # web", ["holds a space, quote or shell character"]),
        ("PORT=", "", ["PORT is missing"]),
        ("MODEL=", "MODEL=", ["MODEL must not be empty"]),
        ("MODEL=", "MODEL=../x-tiny-q4_0.gguf", ["without '..'"]),
        ("REASONING=", "REASONING=maybe", ["one of on, off, auto"]),
        ("SPEC_TYPE=", "SPEC_TYPE=draft-mpt", ["did you mean draft-mtp?"]),
        ("SPEC_DRAFT_N_MAX=", "SPEC_DRAFT_N_MAX=", ["needs SPEC_DRAFT_N_MAX"]),
        ("SPEED_N_MAX=", "SPEED_N_MAX=1;2", ["shell character"]),
        ("SPEED_N_MAX=", "SPEED_N_MAX=1,,2", ["joined by commas"]),
        ("BACKEND=", "BACKEND=cuda", ["needs GPU_NAME"]),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, start: str, line: str, words: list[str]) -> None:
    folder = make(tmp_path, (start, line))
    text = message(folder)
    assert str(folder / "tpu.env") in text
    for word in words:
        assert word in text


def test_a_folder_without_tpu_env_lists_the_rigs(tmp_path: Path) -> None:
    text = message(tmp_path)
    assert "is not a rig" in text
    assert "local-llamacpp-3050oem-2b-q4_0" in text


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("local-llamacpp-3050oem-tiny-q4_0", "the name says 3050oem, BACKEND says cpu"),
        ("local-llamacpp-cpu-2b-q4_0", "the name says 2b"),
        ("local-llamacpp-cpu-tiny-q8_0", "the name says q8_0"),
        ("cloud-llamacpp-cpu-tiny-q4_0", "the name says cloud-llamacpp"),
        ("my-rig", "five slots"),
    ],
)
def test_a_name_that_contradicts_its_settings(tmp_path: Path, name: str, word: str) -> None:
    assert word in message(make(tmp_path, name=name))


def test_the_card_in_the_name_must_be_the_card(tmp_path: Path) -> None:
    source = ROOT / "local-llamacpp-3050oem-2b-q4_0" / "tpu.env"
    folder = tmp_path / "local-llamacpp-1650ti-2b-q4_0"
    folder.mkdir()
    shutil.copy(source, folder)
    assert "the name says 1650ti, GPU_NAME says RTX_3050" in message(folder)


def test_the_environment_beats_the_file(tmp_path: Path) -> None:
    folder = make(tmp_path)
    loaded = rig.load(folder, {"PORT": "9000", "SPEC_DRAFT_MODEL": ""})
    assert (loaded.port, loaded.drafts) == (9000, False)
    assert loaded.overridden == ("SPEC_DRAFT_MODEL", "PORT")
    assert "environment variable PORT" in message(folder, {"PORT": "x"})


def test_settings_read_back_the_same(tmp_path: Path) -> None:
    loaded = rig.load(make(tmp_path), {"SPEED_SPEC_TYPES": "draft-mtp,draft-mtp+ngram-mod"})
    assert loaded.variant(loaded.settings()).settings() == loaded.settings()
    assert loaded.speed_spec_types == ("draft-mtp", "draft-mtp,ngram-mod")
