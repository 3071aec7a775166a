"""MCP's tools for runs, where one of them is not as it was written, or leads elsewhere."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from common.engines.llamacpp import build
from common.errors import RigError
from common.mcp.run_tools import RunTools
from common.measure import run
from common.rig import Rig
from tests.helpers.runs import SPEED, copied


@pytest.fixture
def good(tiny: Rig) -> Path:
    folder = copied(SPEED, tiny.runs_folder / SPEED.name)
    (folder / "REPORT.md").write_text("# Report\n")
    return folder


@pytest.fixture
def tools(tiny: Rig, good: Path) -> RunTools:
    assert good.is_dir()
    return RunTools(tiny.folder)


ODD = ["", "null", "[]", '"x"', '{"what": 5}', '{"what": ["x"]}', '{"what": null}', "[" * 100_000]


@pytest.mark.parametrize("manifest", ODD, ids=range(len(ODD)))
def test_one_bad_run_is_named_and_the_others_are_listed(
    tools: RunTools, good: Path, manifest: str
) -> None:
    bad = good.with_name("2026-11-30-speed-cpu")
    bad.mkdir()
    (bad / run.MANIFEST).write_text(manifest)
    listed = tools.list_runs()
    assert [one.run for one in listed.runs] == [good.name]
    (said,) = listed.damaged
    assert said.startswith(f"{bad.name}: ")
    assert "manifest.json is damaged" in said
    assert tools.recommend("chat").run == good.name
    with pytest.raises(RigError, match=r"manifest\.json is damaged"):
        tools.compare_runs([good.name, bad.name])


@pytest.mark.parametrize("key", ["what", "started", "plan", "harness", "host", "settings"])
@pytest.mark.parametrize("value", [None, 5, [], {"x": 1}])
def test_a_manifest_with_an_odd_value_is_named(
    tools: RunTools, good: Path, key: str, value: object
) -> None:
    manifest = {**run.read_manifest(good), key: value}
    (good / run.MANIFEST).write_text(json.dumps(manifest))
    listed = tools.list_runs()
    assert (listed.runs, len(listed.damaged)) == ([], 1)


def link(path: Path) -> None:
    path.with_name("other").write_text("secret")
    path.symlink_to(path.with_name("other"))


@pytest.mark.parametrize("odd", [link, os.mkfifo, Path.mkdir], ids=["link", "pipe", "folder"])
@pytest.mark.parametrize("part", ["report", "summary", "manifest"])
def test_only_regular_files_are_read(
    tools: RunTools, good: Path, odd: Callable[[Path], object], part: str
) -> None:
    file = good / {"report": "REPORT.md", "summary": run.SUMMARY, "manifest": run.MANIFEST}[part]
    file.unlink()
    odd(file)
    with pytest.raises(
        RigError, match=r"cannot be read: it is a link|no regular file|s a directory"
    ):
        tools.read_run(good.name, part)  # type: ignore[arg-type]
    tools.list_runs()


def test_a_run_that_is_a_link_to_elsewhere_is_none(
    tools: RunTools, good: Path, tmp_path: Path
) -> None:
    copied(SPEED, tmp_path / "elsewhere")
    good.with_name("2026-12-02-speed-cpu").symlink_to(tmp_path / "elsewhere")
    assert [one.run for one in tools.list_runs().runs] == [good.name]
    with pytest.raises(RigError, match="there is no run"):
        tools.read_run("2026-12-02-speed-cpu")


def test_what_is_too_large_or_no_text_is_one_line(tools: RunTools, good: Path) -> None:
    report = good / "REPORT.md"
    report.write_bytes(b"\xff\xfe")
    with pytest.raises(RigError, match=r"the report of .* cannot be read"):
        tools.read_run(good.name)
    os.truncate(report, 1 << 30)
    with pytest.raises(RigError, match="larger than 64 MiB"):
        tools.read_run(good.name)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", '{"source": 5}', '{"source": {"kind": 1}}', "[" * 9999]
)
def test_an_engine_whose_record_is_odd_says_what_to_delete(tmp_path: Path, text: str) -> None:
    (tmp_path / build.INFO).write_text(text)
    with pytest.raises(
        RigError, match=rf"{tmp_path}/engine\.json does not say what engine .*delete it"
    ):
        build._read(tmp_path / "llama-server")
