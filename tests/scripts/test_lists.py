"""scripts/lists, which make and the shell scripts read, says what the project says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from common import kinds
from common.host import container
from common.kinds.accuracy import tests as accuracy_tests
from common.mcp import registration
from common.rig import KEYS, ROOT, Rig
from scripts import entry, lists
from tests.helpers import rig_rules
from tests.test_make import RIGS

RIG_MK = (ROOT / "common" / "rig.mk").read_text()
# Called by an MCP client.
NO_TARGETS = {"mcp_server"}
# Their script is told which file.
FETCHING = {"draft", "model"}
# They need no Python of a container.
NO_VERBS = {"help", "image", "mcp"}


def test_it_is_fresh() -> None:
    assert lists.FILE.read_text() == lists.text(), "make lists"


def test_every_script_of_the_targets_is_a_verb() -> None:
    called = set(re.findall(r"\$\(SCRIPT\)/(\w+)\.py", RIG_MK)) - {"measure"}
    assert called == lists.SCRIPTS.keys() - NO_TARGETS
    for verb in lists.SCRIPTS:
        assert (ROOT / "scripts" / f"{verb}.py").is_file(), verb


def test_every_measurement_of_a_rig_is_a_verb() -> None:
    names = {kind.name for kind in kinds.KINDS if kind.of_rig}
    assert names == lists.measured().keys() | (names & lists.SCRIPTS.keys())
    needs = lists.needs()
    for name in names:
        assert set(lists.MEASURED.split(",")) <= set(needs[name].split(",")), name
    assert lists.MORE.keys() <= lists.measured().keys()


def test_help_names_the_verbs_and_no_others() -> None:
    _code, said, _err = rig_rules.make(ROOT, "-C", RIGS[0], "help")
    targets = set(re.findall(r"^  (\w+) ", said, re.MULTILINE))
    assert targets >= FETCHING
    assert targets - NO_VERBS - FETCHING | {"fetch"} == lists.needs().keys() - NO_TARGETS
    for kind in kinds.KINDS:
        assert not kind.of_rig or f"{f'  {kind.name}':11} {kind.help}\n" in said


def test_files_that_verbs_read_are_settings() -> None:
    read = {word for needed in lists.needs().values() for word in needed.split(",")}
    assert {word for word in read if word.isupper()} == {*lists.FILES, "RUN"}
    assert lists.FILES.keys() <= {*KEYS, *lists.NOT_KEYS}
    # An MCP client may start any of them.
    assert lists.FILES.keys() <= set(lists.SCRIPTS["mcp_server"].split(","))


@pytest.mark.parametrize("verb", sorted(lists.needs()))
def test_the_entry_point_of_the_image_runs_every_verb(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It checks the engine where the verb needs one, then is replaced by the script."""
    checked: list[str] = []
    started: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(container, "read_secrets", lambda: None)
    monkeypatch.setattr(entry, "ready", checked.append)
    monkeypatch.setattr(os, "execv", lambda program, line: started.append((program, line)))
    name = RIGS[0]
    monkeypatch.setattr(sys, "argv", ["entry.py", verb, name, "more"])
    entry.body()
    assert checked == ([name] if "engine" in lists.needs()[verb].split(",") else [])
    ((program, (python, script, *words)),) = started
    assert program == python == sys.executable
    of_script = verb in lists.SCRIPTS
    assert Path(script).name == ("measure.py" if not of_script else f"{verb}.py")
    assert words == ([name, "more"] if of_script else [name, verb, "more"])


def test_the_entry_point_names_the_verbs() -> None:
    line = [sys.executable, str(ROOT / "scripts" / "entry.py")]
    for words, code in (["--help"], 0), ([], 0), (["no-verb"], 2), (["lists"], 2):
        done = subprocess.run([*line, *words], capture_output=True, text=True)
        assert done.returncode == code
        assert f"scripts: {', '.join(sorted(lists.needs()))}\n" in done.stdout


def test_every_command_of_compose_is_a_verb() -> None:
    text = (ROOT / "compose.yaml").read_text()
    assert set(re.findall(r"command: \[(\w+),", text)) == {"serve", "fetch"}
    assert lists.needs().keys() >= {"serve", "fetch"}


@pytest.mark.parametrize("target", sorted(FETCHING))
def test_each_file_has_a_target(target: str) -> None:
    _code, said, _err = rig_rules.make(ROOT, "-n", "-C", RIGS[0], target)
    assert f'/scripts/fetch.py "$RIG" {target}\n' in said


def test_the_file_of_an_accuracy_test_reaches_containers_and_mcp_clients(
    tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for one in accuracy_tests.TESTS:
        assert lists.FILES[one.setting] == "file"
        assert one.setting in lists.NOT_KEYS
        for verb in ("accuracy", "mcp_server"):
            assert one.setting in lists.needs()[verb].split(","), verb
        kept = registration.entry(tiny, "docker", {one.setting: "mine"})["env"]
        assert kept == {one.setting: str(tmp_path / "mine")}
