"""tpu.env: grammar, errors, the same reading in make, bash and Python (compose: tests/docker)."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from common import env_file, rig
from common.engines.llamacpp import serve
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


@pytest.mark.parametrize("key", sorted(rig.DEFAULTS))
def test_an_empty_key_is_its_default(tmp_path: Path, key: str) -> None:
    """In the file and in the environment; what nobody may leave out is told in one line."""
    folder = make(tmp_path)
    lines = (folder / "tpu.env").read_text().splitlines()
    others = [line for line in lines if not line.startswith((f"{key}=", "SPEC_TYPE="))]
    absent = "\n".join([*others, "SPEC_TYPE=" if key != "SPEC_TYPE" else ""]) + "\n"
    (folder / "tpu.env").write_text(absent)
    wanted = rig.load(folder, {})
    (folder / "tpu.env").write_text(f"{absent}{key}=\n" if key != "SPEC_TYPE" else absent)
    assert rig.load(folder, {}) == wanted
    (folder / "tpu.env").write_text("\n".join([*others, "SPEC_TYPE="]) + "\n")
    assert rig.load(folder, {key: ""}).settings() == wanted.settings()
    for measuring in (False, True):
        assert None not in serve.command(wanted, "x", measuring)
        assert "" not in serve.command(wanted, "x", measuring)


@pytest.mark.parametrize("key", rig.WANTED)
def test_an_empty_variable_leaves_what_the_file_says(tmp_path: Path, key: str) -> None:
    folder = make(tmp_path)
    assert rig.load(folder, {key: ""}) == rig.load(folder, {})


@pytest.mark.parametrize("host", ["::1", "127.0.0.2", "0.0.0.0", "localhost"])
def test_an_address_in_the_environment_is_taken_and_said(tmp_path: Path, host: str) -> None:
    loaded = rig.load(make(tmp_path), {"HOST": host})
    assert loaded.host == host
    assert loaded.from_outside() == [f"from the environment, not from tpu.env: HOST={host}"]


@pytest.mark.parametrize("host", ["x86_64-conda-linux-gnu", "my-laptop", "1.2.3.4.5", "a b", "1"])
def test_a_name_in_the_environment_is_no_address(tmp_path: Path, host: str) -> None:
    loaded = rig.load(make(tmp_path), {"HOST": host})
    assert loaded.host == "127.0.0.1"
    assert loaded.overridden == ()
    assert loaded.from_outside() == [
        f"in the environment, but no address, so not taken: HOST={host}"
    ]


def test_what_the_environment_repeats_is_not_said(tmp_path: Path) -> None:
    loaded = rig.load(make(tmp_path), {"HOST": "127.0.0.1", "PORT": "8081", "THREADS": "2"})
    assert loaded.overridden == ("HOST", "PORT", "THREADS")
    assert loaded.from_outside() == ["from the environment, not from tpu.env: THREADS=2"]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("::1", "http://[::1]:8081"),
        ("::", "http://[::1]:8081"),
        ("0.0.0.0", "http://127.0.0.1:8081"),
        ("192.168.0.7", "http://192.168.0.7:8081"),
    ],
)
def test_the_address_to_call(tmp_path: Path, host: str, url: str) -> None:
    assert rig.load(make(tmp_path, ("HOST=", f"HOST={host}")), {}).url == url


@pytest.mark.parametrize(
    "origin", ["*", "localhost,https://a.example", "evil.example", "ftp://a", "https://a/b"]
)
def test_only_one_origin_may_be_let_in(tmp_path: Path, origin: str) -> None:
    text = message(make(tmp_path), {"CORS_ORIGINS": origin})
    assert "CORS_ORIGINS" in text


ENDS = ["\u2028", "\u2029", "\u0085", "\f", "\v", "\x1c"]


@pytest.mark.parametrize("sign", ENDS)
def test_only_a_line_end_ends_a_line(tmp_path: Path, sign: str) -> None:
    folder = make(tmp_path)
    file = folder / "tpu.env"
    plain = rig.load(folder, {})
    file.write_text(f"# a comment{sign}SPEC_DRAFT_P_MIN=0.5\n{file.read_text()}")
    assert rig.load(folder, {}) == plain
    env_file.rewrite(file, {"PORT": "9000"})
    assert f"# a comment{sign}SPEC_DRAFT_P_MIN=0.5\n" in file.read_text()
    assert rig.load(folder, {}) == dataclasses.replace(plain, port=9000)
    file.write_text(file.read_text().replace("PORT=9000", f"PORT=9000{sign}"))
    assert "shell character" in message(folder)


def test_line_ends_of_windows_are_read(tmp_path: Path) -> None:
    folder = make(tmp_path)
    plain = rig.load(folder, {})
    (folder / "tpu.env").write_bytes((folder / "tpu.env").read_bytes().replace(b"\n", b"\r\n"))
    assert rig.load(folder, {}) == plain


def test_settings_read_back_the_same(tmp_path: Path) -> None:
    loaded = rig.load(make(tmp_path), {"SPEED_SPEC_TYPES": "draft-mtp,draft-mtp+ngram-mod"})
    assert loaded.variant(loaded.settings()).settings() == loaded.settings()
    assert loaded.speed_spec_types == ("draft-mtp", "draft-mtp,ngram-mod")
