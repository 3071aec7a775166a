"""The house: layers that a tool holds, one registration, and what follows from it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from common import kinds, rig
from common.engines import Engine
from common.engines.llamacpp import serve
from common.measure.kind import Kind
from common.rig import GROUPS, ROOT, Rig
from scripts import lists
from tests.helpers import rig_rules

TINY = "local-llamacpp-cpu-tiny-q4_0"
# A whole measurement: how many replies came back empty. One folder, one line of registration.
TOY = {
    "__init__.py": '''"""Empty: how many replies are empty?"""

from common.measure.kind import Kind

KINDS = (Kind("empty", "how many replies are empty?", __name__, "EMPTY_"),)
''',
    "plan.py": """from common.measure.arms import GREEDY
from common.measure.kind import Tools
from common.measure.plan import Arm, Cell, Plan, Round
from common.rig import Rig
from common.serving import client


def planned(rig: Rig, tools: Tools) -> tuple[Rig, Plan]:
    cells = [Cell("hello", [client.chat("Hello", 8)])]
    rounds = [Round("greedy-1", "greedy", GREEDY), Round("drift", "drift", GREEDY)]
    return rig, Plan("empty", [Arm("none", {"SPEC_TYPE": ""})], cells, rounds, tools.quick)
""",
    "summary.py": """from pathlib import Path

from common.measure.log import Log


def summarise(folder: Path) -> dict:
    log = Log(folder)
    samples = [sample for trial in log.trials for sample in trial["samples"]]
    return {**log.head(), "empty": sum(not one["content"] for one in samples), "of": len(samples)}
""",
    "report.py": """def render(summary: dict, manifest: dict, folder: object) -> str:
    return f"# Empty replies\\n\\n{answer(summary, manifest)}\\n"


def answer(summary: dict, manifest: dict) -> str:
    return f"{summary['empty']} of {summary['of']} replies were empty."
""",
    "rows.py": """from common.measure.quantities import figure


def rows(summary: dict, manifest: dict):
    yield figure("empty_replies", "replies", "none", float(summary["empty"]))
""",
    "schema.py": """from common.measure.summary import Count, Head


class Summary(Head):
    empty: Count
    of: Count
""",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the project that a test may change."""
    tree = tmp_path / "project"
    tree.mkdir()
    for name in ("common", "scripts"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tree / TINY).mkdir()
    for name in ("tpu.env", "Makefile"):
        shutil.copy(ROOT / TINY / name, tree / TINY)
    shutil.copy(ROOT / "pyproject.toml", tree)
    return tree


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [str(program), "--no-cache"],
        cwd=tree,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tree), "NO_COLOR": "1", "COLUMNS": "200"},
    )


def test_the_layers_hold(tree: Path) -> None:
    done = lint(tree)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("common/measure/up.py", "from common.kinds import speed", "common.measure is not allowed"),
        (
            "common/kinds/speed/other.py",
            "from common.kinds.longctx import plan",
            "common.kinds.speed is not allowed to import common.kinds.longctx",
        ),
        (
            "common/measure/words.py",
            "from common.engines.llamacpp import serve",
            "common.measure is not allowed to import common.engines.llamacpp",
        ),
        ("common/files/back.py", "from scripts import cli", "common is not allowed"),
        ("common/stray.py", "", "stray"),
    ],
)
def test_a_wrong_import_or_a_file_without_a_place_is_found(
    tree: Path, file: str, text: str, said: str
) -> None:
    (tree / file).write_text(text + "\n")
    done = lint(tree)
    assert done.returncode != 0
    assert said in done.stdout


def test_folders_registration_and_targets_are_the_same() -> None:
    folders = {path.parent.name for path in ROOT.glob("common/kinds/*/__init__.py")}
    assert folders == set(kinds.FOLDERS)
    assert (ROOT / "scripts" / "lists").read_text() == lists.text()  # else: make lists
    code, out, _err = rig_rules.make(ROOT, "-C", TINY, "help")
    assert code == 0
    for kind in kinds.KINDS:
        shown = any(line.split()[:1] == [kind.name] for line in out.splitlines())
        assert shown is kind.of_rig, kind.name


@pytest.mark.parametrize("kind", kinds.KINDS, ids=kinds.NAMES)
def test_a_kind_has_what_its_record_says(kind: Kind) -> None:
    if kind.of_rig:
        assert callable(getattr(kind.part("plan"), kind.plan))
    assert callable(kind.part("summary").summarise)
    assert callable(kind.part("report").render)
    assert callable(kind.part("report").answer)
    known: type[Any] = kind.part("schema").Summary
    schema = TypeAdapter(known).json_schema()
    assert schema["additionalProperties"] is False
    assert "schema" not in schema["properties"]  # that is the record's: schema_version
    rows, section = (
        ROOT.joinpath(*kind.package.split("."), f"{n}.py") for n in ("rows", "section")
    )
    assert rows.is_file() is kind.has_rows
    assert section.is_file() is kind.section
    for key, group in GROUPS.items():
        if key.startswith(kind.prefix):
            assert group == kind.name, key


def test_a_new_measurement_is_a_folder_and_a_line(
    tree: Path, tiny: Rig, fake: Callable[..., Engine], tmp_path: Path
) -> None:
    fake()
    folder = tree / "common" / "kinds" / "empty"
    folder.mkdir()
    for name, text in TOY.items():
        (folder / name).write_text(text)
    registration = tree / "common" / "kinds" / "__init__.py"
    registration.write_text(
        registration.read_text().replace('    "cost",', '    "cost",\n    "empty",')
    )
    environment = {**os.environ, "PYTHONPATH": str(tree)}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=tree, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("scripts/lists.py")
    _code, out, _err = rig_rules.make(tree, "-C", TINY, "help")
    assert re.search(r"^ +empty +how many replies are empty\?$", out, re.MULTILINE)
    _code, out, _err = rig_rules.make(tree, "-n", "-C", TINY, "empty")
    assert 'scripts/measure.py "$RIG" empty' in out
    assert "empty|measure|card,engine,fetches|" in (tree / "scripts" / "lists").read_text()
    out = run("scripts/measure.py", str(tiny.folder), "empty", str(tmp_path / "run"))
    assert "0 of 2 replies were empty." in out
    assert (tmp_path / "run" / "REPORT.md").read_text().startswith("# Empty replies")
    run("scripts/compare.py", str(tmp_path / "run"), "--out", str(tmp_path / "page"))
    page = (tmp_path / "page" / "COMPARE.md").read_text()
    assert "0 of 2 replies were empty." in page
    assert "empty_replies" in (tmp_path / "page" / "compare.csv").read_text()
    tool = (
        "from pathlib import Path; from scripts.mcp_server import tools\n"
        f"named = {{tool.name: tool for tool in tools(Path({str(tiny.folder)!r}))}}\n"
        "told = named['start_measurement']\n"
        "print(told.description, told.parameters['properties']['kind']['enum'])"
    )
    out = run("-c", tool)
    assert "empty: how many replies are empty?" in out
    assert "'empty'" in out
    assert lint(tree).returncode == 0


CHANGED = {
    "SPEC_TYPE": "ngram-mod",
    "SPEC_DRAFT_N_MAX": "7",
    "SPEC_DRAFT_P_MIN": "0.3",
    "SPEC_SYNTH_RATES": "0.5",
    "CTX_SIZE": "1024",
    "THREADS": "3",
    "N_GPU_LAYERS": "12",
    "CACHE_TYPE_K": "q8_0",
    "CACHE_TYPE_V": "q8_0",
    "FLASH_ATTN": "0",
    "REASONING": "on",
    "CHAT_TEMPLATE": "none",
    "PARALLEL": "3",
    "KV_UNIFIED": "1",
    "BATCH_SIZE": "64",
    "UBATCH_SIZE": "32",
}


def test_every_serve_setting_changes_the_command() -> None:
    loaded = rig.load(ROOT / TINY, {})
    plain = serve.command(loaded, "llama-server")
    assert set(CHANGED) == {key for key, group in GROUPS.items() if group == "serve"}
    for key, value in CHANGED.items():
        assert serve.command(loaded.variant({key: value}), "llama-server") != plain, key
    for key, group in GROUPS.items():
        if group not in ("serve", "address", "files"):
            assert key not in CHANGED
