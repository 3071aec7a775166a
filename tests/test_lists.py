"""scripts/lists, which make and the shell scripts read, says what the project says."""

import re

from common import kinds
from common.rig import KEYS, ROOT
from scripts import lists
from tests import rig_rules
from tests.test_make import RIGS

RIG_MK = (ROOT / "common" / "rig.mk").read_text()
# Called by compose.yaml and by an MCP client.
NO_TARGETS = {"bring", "mcp_server"}
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
    assert targets - NO_VERBS == lists.needs().keys() - NO_TARGETS
    for kind in kinds.KINDS:
        assert not kind.of_rig or f"{f'  {kind.name}':11} {kind.help}\n" in said


def test_files_that_verbs_read_are_settings() -> None:
    read = {word for needed in lists.needs().values() for word in needed.split(",")}
    assert {word for word in read if word.isupper()} == {*lists.FILES, "RUN"}
    assert lists.FILES.keys() <= {*KEYS, *lists.NOT_KEYS}
    # An MCP client may start any of them.
    assert lists.FILES.keys() <= set(lists.SCRIPTS["mcp_server"].split(","))
