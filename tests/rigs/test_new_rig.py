"""make new-rig: what fits a card becomes a rig like the shipped ones, the rest is refused."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from common import packages, rig
from common.engines.llamacpp import memory
from common.engines.llamacpp.memory import Load
from common.errors import RigError
from common.files import wanted
from common.rig import ROOT
from common.rigs import cards, fitting, services, sizes
from common.rigs import folder as rig_folder
from common.rigs.blueprint import Blueprint
from common.rigs.cards import CARDS, Card
from common.rigs.sizes import SIZES, Size
from scripts import new_rig
from tests.helpers import rig_rules
from tests.test_make import NOW

Pair = tuple[Card, Size]
PAIRS: list[Pair] = [(card, size) for card in CARDS.values() for size in SIZES.values()]


def fits(card: Card, size: Size) -> bool:
    try:
        fitting.fit(card, size, "q4_0")
    except RigError:
        return False
    return True


FITTING = [pair for pair in PAIRS if fits(*pair)]
LACKING = [pair for pair in PAIRS if pair not in FITTING]


def label(value: Card | Size) -> str:
    return value.slot if isinstance(value, Card) else value.name


def copy_of_the_tree(folder: Path) -> Path:
    """A project with everything that a rig's rules need."""
    folder.mkdir()
    for name in ("common", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".venv").symlink_to(ROOT / ".venv")
    for name in (
        "compose.yaml",
        "README.md",
        ".compose-lint.yml",
        "Makefile",
        *packages.LOCKS.values(),
    ):
        shutil.copy2(ROOT / name, folder)
    for name in packages.LOCKS.values():
        shutil.copy2(ROOT / name, folder)
    return folder


def make(root: Path, card: Card, size: Size, encoding: str = "q4_0") -> Path:
    fit = fitting.fit(card, size, encoding)
    return rig_folder.make(Blueprint(card, size, encoding, fit), root)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return copy_of_the_tree(tmp_path / "tree")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree_of_all(tmp_path_factory.mktemp("all") / "tree")


def tree_of_all(folder: Path) -> Path:
    """A tree with every rig that fits."""
    root = copy_of_the_tree(folder)
    # The shipped rigs are in compose.yaml already; these are made anew, from nothing.
    text = (root / "compose.yaml").read_text()
    start, end = text.index("\nservices:\n") + len("\nservices:\n"), text.index("\nvolumes:\n")
    (root / "compose.yaml").write_text(f"{text[:start]}{text[end:]}")
    for card, size in FITTING:
        make(root, card, size)
    return root


@pytest.fixture(scope="module")
def compose(made: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((made / "compose.yaml").read_text()))


def name_of(card: Card, size: Size) -> str:
    return f"local-llamacpp-{card.slot}-{size.name}-q4_0"


@pytest.mark.parametrize(("card", "size"), FITTING, ids=label)
def test_a_made_rig_keeps_the_rules_of_every_rig(
    made: Path, compose: dict[str, Any], card: Card, size: Size, tmp_path: Path
) -> None:
    folder = made / name_of(card, size)
    rig_rules.loads_under_a_true_name(folder)
    rig_rules.is_only_data(folder)
    rig_rules.reads_the_same_in_python_bash_and_make(folder, tmp_path)
    rig_rules.service_agrees(made, compose, rig.load(folder, {}))
    for service in (folder.name, f"{folder.name}-files"):
        rig_rules.service_is_hardened(compose["services"][service], service == folder.name)
    rig_rules.runs_in_its_image(made, folder.name, in_image=True)


def test_compose_has_these_services_and_its_linter_finds_nothing(
    made: Path, compose: dict[str, Any]
) -> None:
    names = [name_of(*pair) for pair in FITTING]
    assert sorted(compose["services"]) == sorted([*names, *(f"{name}-files" for name in names)])
    program = Path(sys.executable).with_name("compose-lint")
    done = subprocess.run([program, "compose.yaml"], cwd=made, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


ROW = re.compile(r"^\| \[(local-\S+)\]\((\S+)/README\.md\) \| .+ \| .+ \|$", re.MULTILINE)


def in_table(root: Path) -> list[str]:
    """The rigs that README.md names, each with a link to its own folder."""
    found = ROW.findall((root / "README.md").read_text())
    assert all(name == folder for name, folder in found)
    return [name for name, _folder in found]


def test_the_readme_names_every_rig_once(made: Path) -> None:
    shipped = [folder.name for folder in rig.all_rigs()]
    assert sorted(in_table(ROOT)) == sorted(shipped)
    # The copy has the shipped ones in its README too, and made some of them once more.
    assert in_table(made) == in_table(ROOT) + [name_of(*pair) for pair in FITTING]


def test_a_made_rigs_line_is_as_the_shipped_ones(made: Path) -> None:
    for size in ("2b", "4b"):
        name = name_of(CARDS["3050oem"], SIZES[size])
        lines = [line for line in (made / "README.md").read_text().splitlines() if name in line]
        shipped, mine = [line for line in lines if line.startswith(f"| [{name}](")]
        assert shipped == mine


@pytest.mark.parametrize("times", [0, 2])
def test_a_readme_without_the_end_of_its_table_is_left(tree: Path, times: int) -> None:
    end = rig_folder.END_OF_TABLE
    text = (tree / "README.md").read_text().replace(end, end * times)
    (tree / "README.md").write_text(text)
    with pytest.raises(RigError, match="expected the line <!-- end of the rigs --> once"):
        make(tree, CARDS["l4"], SIZES["2b"])
    assert (tree / "README.md").read_text() == text
    assert (tree / "compose.yaml").read_bytes() == (ROOT / "compose.yaml").read_bytes()
    assert not list(tree.glob("local-*"))


def test_a_new_pin_reaches_compose_and_the_memory_limit_stays(tree: Path) -> None:
    """By make compose; the other rig and every other line stay."""
    first, second = make(tree, CARDS["l4"], SIZES["2b"]), make(tree, CARDS["l4"], SIZES["4b"])
    compose = tree / "compose.yaml"
    compose.write_text(compose.read_text().replace("${MEM_LIMIT:-12g}", "${MEM_LIMIT:-9g}"))
    before = compose.read_text()
    assert services.anew(tree) == before
    tpu_env = (first / rig.FILE).read_text()
    changed = tpu_env.replace("LLAMA_CPP_COMMIT=", "LLAMA_CPP_COMMIT=1e5").replace("=8080", "=9090")
    (first / rig.FILE).write_text(changed)
    code, out, err = rig_rules.make(tree, "compose", PYTHONPATH=str(tree))
    assert code == 0, err
    assert f"wrote {compose}" in out
    after = compose.read_text()
    for folder in (first, second):
        rig_rules.service_agrees(tree, yaml.safe_load(after), rig.load(folder, {}))
    pairs = zip(before.splitlines(), after.splitlines(), strict=True)
    new = [line for old, line in pairs if old != line]
    assert len(new) == 5  # both images, the commit, both lines of the port
    assert sum("1e5" in line for line in new) == 3


@pytest.mark.parametrize("lost", ["-files:", "mem_limit: "])
def test_compose_without_a_rigs_service_is_left(tree: Path, lost: str) -> None:
    name = make(tree, CARDS["l4"], SIZES["2b"]).name
    compose = tree / "compose.yaml"
    text = compose.read_text().replace(f"  {name}-files:" if lost == "-files:" else lost, "    x: ")
    compose.write_text(text)
    code, _out, err = rig_rules.make(tree, "compose", PYTHONPATH=str(tree))
    assert code == 2
    assert f"has no services {name} and {name}-files of the usual form" in err
    assert compose.read_text() == text


@pytest.mark.parametrize(("card", "size"), FITTING[:1] + FITTING[-1:], ids=label)
def test_make_works_in_a_made_rig(made: Path, card: Card, size: Size) -> None:
    name = name_of(card, size)
    rig_rules.help_names(made, name, NOW)
    code, out, err = rig_rules.make(made, "-C", name, "show", PYTHONPATH=str(made))
    assert code == 0, err
    assert f"{size.model_file('q4_0')} " in out
    assert f" -c {fitting.fit(card, size, 'q4_0').serve.ctx_size} " in out


@pytest.mark.parametrize(("card", "size"), FITTING, ids=label)
def test_its_settings_fit_and_its_readme_claims_nothing(made: Path, card: Card, size: Size) -> None:
    folder = made / name_of(card, size)
    mine = rig.load(folder, {})
    loads = [(mine.ctx_size, mine.parallel or 4, mine.parallel is None)]
    loads += [(mine.longctx_ctx_size or 0, 1, False)] if mine.longctx_depths else []
    for slots, ctx in (
        (mine.sweep_parallel, mine.sweep_ctx_size),
        (mine.longmixed_parallel, mine.longmixed_ctx_size),
    ):
        assert (slots is None) == (ctx is None)
        if slots and ctx:
            loads += [(ctx, slots, True), (ctx, slots, False)]
    for load in loads:
        assert fitting.need(size, "q4_0", Load(*load)).total < card.memory_mib
    assert max(mine.longctx_depths) < (mine.longctx_ctx_size or 0)
    readme = (folder / "README.md").read_text()
    assert "**Nothing here has been measured.**" in readme
    assert f"{card.memory_mib:,}" in readme
    assert "tokens/s" not in readme


def test_what_is_known_of_the_files_and_what_is_not(made: Path) -> None:
    for card, size in FITTING:
        mine = rig.load(made / name_of(card, size), {})
        known = size.name in ("2b", "4b")
        assert [bool(value) for value in (mine.model_hf, mine.spec_draft_hf, mine.repack_hf)] == [
            known,
            known,
            known,
        ]
        text = (made / mine.name / "tpu.env").read_text()
        assert ("no repository is known" in text) == (not known)


@pytest.mark.parametrize("size", ["2b", "4b"])
def test_it_makes_the_settings_that_are_shipped(made: Path, size: str) -> None:
    """For the 3050 all but CTX_SIZE, which the study set to 8192 on every card."""
    ours = rig_rules.settings(made / f"local-llamacpp-3050oem-{size}-q4_0")
    theirs = rig_rules.settings(ROOT / f"local-llamacpp-3050oem-{size}-q4_0")
    changed = {key for key, value in theirs.items() if ours[key] != value}
    assert changed == {"CTX_SIZE", "GPU_NAME"}
    assert (ours["GPU_NAME"], theirs["GPU_NAME"]) == ("RTX_3050_OEM", "RTX_3050")


def test_the_small_card_stops_where_the_study_did(made: Path) -> None:
    """E4B on 4 GiB: 32,768 tokens deep, and 16 slots of 1,024."""
    ours = rig_rules.settings(made / "local-llamacpp-1650ti-4b-q4_0")
    theirs = rig_rules.settings(ROOT / "local-llamacpp-1650ti-4b-q4_0")
    changed = {key for key, value in theirs.items() if ours[key] != value}
    assert changed == {"CTX_SIZE", "LONGMIXED_PARALLEL", "LONGMIXED_CTX_SIZE"}


@pytest.mark.parametrize(("card", "size"), LACKING, ids=label)
def test_what_does_not_fit_is_refused_with_the_arithmetic(
    tree: Path, card: Card, size: Size
) -> None:
    with pytest.raises(RigError, match=f"does not fit the {card.name}") as caught:
        make(tree, card, size)
    text = str(caught.value)
    for word in ("weights", "KV cache", "drafter", "working buffers", "in all", "an estimate"):
        assert word in text
    figures = [float(line.split()[-2].replace(",", "")) for line in text.splitlines()[1:-1]]
    *parts, total, _spare, has = figures
    assert has == card.memory_mib
    assert abs(sum(parts) - total) <= len(parts)
    assert total > has - fitting.SPARE_MIB
    assert_nothing_was_made(tree)


def assert_nothing_was_made(tree: Path) -> None:
    for name in ("compose.yaml", "README.md"):
        assert (tree / name).read_bytes() == (ROOT / name).read_bytes()
    assert not [path for path in tree.iterdir() if path.name.startswith(("local-", ".new-rig-"))]


@pytest.mark.parametrize("encoding", ["q8_0", "bf16"])
def test_other_encodings(tree: Path, encoding: str) -> None:
    folder = make(tree, CARDS["h200"], SIZES["4b"], encoding)
    assert folder.name == f"local-llamacpp-h200-4b-{encoding}"
    mine = rig.load(folder, {})
    assert mine.model == f"gemma-4-E4B-it-{encoding}.gguf"
    assert (mine.model_hf, mine.spec_draft_hf) == (None, SIZES["4b"].drafter_hub)
    rig_rules.service_agrees(tree, yaml.safe_load((tree / "compose.yaml").read_text()), mine)


def test_every_other_line_of_compose_stays(tree: Path) -> None:
    before = (tree / "compose.yaml").read_text().splitlines()
    make(tree, CARDS["l4"], SIZES["12b"])
    after = (tree / "compose.yaml").read_text().splitlines()
    start = after.index(f"  {name_of(CARDS['l4'], SIZES['12b'])}:")
    added = len(after) - len(before)
    assert after[:start] + after[start + added :] == before
    assert sum("#" in line for line in after) == sum("#" in line for line in before)


def test_an_existing_folder_is_never_touched(tree: Path) -> None:
    folder = make(tree, CARDS["l4"], SIZES["2b"])
    (folder / "tpu.env").write_text("mine\n")
    before = (tree / "compose.yaml").read_bytes()
    with pytest.raises(RigError, match=r"exists already and is left as it is$"):
        make(tree, CARDS["l4"], SIZES["2b"])
    assert (folder / "tpu.env").read_text() == "mine\n"
    assert (tree / "compose.yaml").read_bytes() == before
    shutil.rmtree(folder)
    with pytest.raises(RigError, match=r"has a service .* already, but there is no such folder"):
        make(tree, CARDS["l4"], SIZES["2b"])


@pytest.mark.parametrize("kind", ["empty folder", "file", "dangling link"])
def test_whatever_has_the_name_is_left(tree: Path, kind: str) -> None:
    place = tree / name_of(CARDS["l4"], SIZES["2b"])
    if kind == "file":
        place.write_text("mine")
    elif kind == "dangling link":
        place.symlink_to(tree / "nowhere")
    else:
        place.mkdir()
    with pytest.raises(RigError, match="exists already and is left as it is") as caught:
        make(tree, CARDS["l4"], SIZES["2b"])
    assert ("if it is half a rig, remove it" in str(caught.value)) == (kind == "empty folder")
    assert place.is_symlink() or place.exists()
    assert (tree / "compose.yaml").read_bytes() == (ROOT / "compose.yaml").read_bytes()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["write_text", "rename", "replace"])
def test_interrupted_or_refused_in_the_middle_it_leaves_nothing(
    tree: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, step: str
) -> None:
    real = getattr(Path, step)

    def fail(path: Path, *rest: Any, **options: Any) -> Any:
        if step != "write_text" or path.name == "README.md":
            raise error
        return real(path, *rest, **options)

    monkeypatch.setattr(Path, step, fail)
    with pytest.raises((RigError, KeyboardInterrupt)) as caught:
        make(tree, CARDS["l4"], SIZES["2b"])
    monkeypatch.undo()
    if isinstance(error, OSError):
        assert "No space left on device; nothing was made" in str(caught.value)
    assert_nothing_was_made(tree)
    make(tree, CARDS["l4"], SIZES["2b"])


@pytest.mark.parametrize("name", ["README.md", "compose.yaml"])
def test_interrupted_between_the_files_it_leaves_nothing(
    tree: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real = Path.replace

    def replace(path: Path, target: Path) -> Path:
        if path.name == name:
            raise KeyboardInterrupt
        return real(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        make(tree, CARDS["l4"], SIZES["2b"])
    assert_nothing_was_made(tree)


def test_a_folder_that_cannot_be_written(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied", str(tree))

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    with pytest.raises(RigError, match=r"Permission denied; nothing was made"):
        make(tree, CARDS["l4"], SIZES["2b"])
    assert_nothing_was_made(tree)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("\nvolumes:\n", "\nvolumes: # here\n", "expected `volumes:` after the services"),
        ("\nservices:\n", "\nnetworks: {}\nservices:\n  - x\n", "layout is not the usual one"),
        ("x-files: &files", "x-files:", "layout is not the usual one"),
        ("\nvolumes:\n", "\nnetworks:\n  one: {}\nvolumes:\n", "layout is not the usual one"),
    ],
)
def test_a_compose_file_of_another_layout_is_left(
    tree: Path, old: str, new: str, text: str
) -> None:
    changed = (tree / "compose.yaml").read_text().replace(old, new)
    (tree / "compose.yaml").write_text(changed)
    with pytest.raises(RigError, match=text):
        make(tree, CARDS["l4"], SIZES["2b"])
    text = changed
    assert (tree / "compose.yaml").read_text() == text
    assert not list(tree.glob("local-*"))


def test_a_rig_without_a_known_repository_fails_in_words(
    made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MODELS_DIR", str(tmp_path))
    mine = rig.load(made / "local-llamacpp-4090-31b-q4_0", {})
    assert memory.need_mib(mine) is None
    with pytest.raises(
        RigError, match=r"names no source for it \(MODEL_HF is empty\); put the file"
    ):
        wanted.fetch(mine, lambda _: None)
    with pytest.raises(RigError, match=r"\(SPEC_DRAFT_HF is empty\); put the file there"):
        wanted.fetch(mine, lambda _: None, roles=("drafter",))


def no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> NoReturn:
        raise RigError("no NVIDIA card can be used on this host (NVML: none)")

    monkeypatch.setattr("common.host.card.cards", none)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--size", "7b"], "SIZE=7b: sizes are 2b, 4b, 12b, 26b, 31b"),
        (["--size", "../2b"], "sizes are 2b, 4b"),
        (["--size", "2b", "--encoding", "q5_9"], "encodings are q4_0, q8_0, bf16"),
        (["--size", "2b", "--gpu", "../../x"], "GPU='../../x': this card is not known"),
        (["--size", "2b", "--gpu", "L4' $(id)"], "this card is not known"),
        (["--size", "2b"], "name the card: make new-rig GPU="),
    ],
)
def test_bad_requests_are_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], text: str
) -> None:
    no_card(monkeypatch)
    with pytest.raises(RigError) as caught:
        new_rig.body(arguments)
    assert text in str(caught.value)


def test_without_a_size_it_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        new_rig.body([])
    assert ended.value.code == 2
    assert "2b|4b|12b|26b|31b" in capsys.readouterr().err


def test_the_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    no_card(monkeypatch)
    new_rig.body(["--list"])
    out = capsys.readouterr().out
    assert "nothing of it has been measured" in out
    assert out.count("does not fit") == len(LACKING)
    new_rig.body(["--list", "--gpu", "L4"])
    assert "4090" not in capsys.readouterr().out


def test_it_says_what_it_made(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cards, "find", lambda _name: CARDS["l4"])
    monkeypatch.setattr(rig_folder.make, "__defaults__", (tree,))
    new_rig.body(["--size", "2b"])
    out = capsys.readouterr().out
    assert "made local-llamacpp-l4-2b-q4_0 with its service in compose.yaml and its line in" in out
    assert "nothing of it has been measured" in out
    assert (tree / "local-llamacpp-l4-2b-q4_0" / "tpu.env").is_file()


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this host has an NVIDIA card")
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (["SIZE=7b", "GPU=L4"], "SIZE=7b"),
        (["SIZE=2b", "GPU=x; touch pwned"], "this card is not known"),
        (["SIZE=2b", "GPU=$$(touch pwned)"], "this card is not known"),
        (['SIZE=2b" ; touch pwned ; "', "GPU=L4"], "sizes are"),
        (["SIZE=2b", "GPU=it's"], "this card is not known"),
        (["SIZE=2b"], "no NVIDIA card can be used on this host"),
    ],
)
def test_make_new_rig_passes_hostile_words_whole(
    tree: Path, settings: list[str], text: str
) -> None:
    code, _out, err = rig_rules.make(tree, "new-rig", *settings, PYTHONPATH=str(tree))
    assert code == 2
    assert text in err
    assert err.count("error: ") == 1
    assert "Traceback" not in err
    assert not (tree / "pwned").exists()
    assert_nothing_was_made(tree)


def test_make_new_rig_then_make_use(tree: Path) -> None:
    code, out, err = rig_rules.make(
        tree, "new-rig", "SIZE=12b", "GPU=NVIDIA L4", PYTHONPATH=str(tree)
    )
    assert code == 0, err
    name = "local-llamacpp-l4-12b-q4_0"
    assert f"made {name}" in out
    rig_rules.loads_under_a_true_name(tree / name)
    code, out, err = rig_rules.make(tree, "use", f"RIG={name}")
    assert code == 0, err
    assert (tree / ".env").read_text() == f"COMPOSE_PROFILES={name}\n"
    code, _out, err = rig_rules.make(
        tree, "new-rig", "SIZE=12b", "GPU=L4", "ENCODING=q4_0", PYTHONPATH=str(tree)
    )
    assert code == 2
    assert "exists already" in err


# Published sizes in bf16, in GB, with the parts that see and hear.
PUBLISHED = {"2b": 10.2, "4b": 16.0, "12b": 24.0, "26b": 51.6, "31b": 62.0}


def test_sizes_are_counted_near_what_is_published() -> None:
    """Bytes in bf16, less than published: the parts that see and hear are not in the text model."""
    assert PUBLISHED.keys() == SIZES.keys()
    for name, size in SIZES.items():
        counted = size.file_gib("bf16") * 2**30 / 1e9
        assert 0.88 * PUBLISHED[name] < counted < PUBLISHED[name]
    with pytest.raises(RigError, match="did you mean 31b"):
        sizes.find("31")
