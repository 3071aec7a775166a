"""The whole of `make speed` on the real engine: the report's kept must be the known one."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from common import report
from common.engines.llamacpp.build import Engine
from common.rig import ROOT, Rig
from scripts import _cli

pytestmark = pytest.mark.engine


def measured(rig: Rig, engine: Engine, out: Path, **settings: str) -> dict[str, Any]:
    """A quick run with these settings; returns its summary."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "QUICK": "1", **settings}
    environment["LLAMA_SERVER"] = str(engine.server)
    done = subprocess.run(
        [*_cli.command("speed", str(rig.folder)), str(out)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads((out / report.SUMMARY).read_text()))


def test_the_reports_kept_is_exact_at_every_length(
    tiny: Rig, real_engine: Engine, tmp_path: Path
) -> None:
    summary = measured(tiny, real_engine, tmp_path / "run")
    kept = {arm["arm"]: arm["kept"] for arm in summary["arms"]}
    assert [row["arm"] for row in summary["known_answer"]] == ["n=1", "n=2", "n=3"]
    for row in summary["known_answer"]:
        assert row["equal"] is True
        assert row["expected"] == kept[row["arm"]]
        assert len(row["expected"]["accepted_per_pos"]) == int(row["arm"][2:])
    assert kept["none"] is None
    for row in summary["equal_text"]:
        assert row["equal"] == row["of"], row
    text = (tmp_path / "run" / report.REPORT).read_text()
    assert "Known-answer pair" in text
    assert "not run on a card" in text


def test_draft_types_that_work_together(tiny: Rig, real_engine: Engine, tmp_path: Path) -> None:
    both = "draft-mtp,draft-mtp+ngram-mod"
    settings = {"SPEED_SPEC_TYPES": both, "SPEED_N_MAX": "2"}
    summary = measured(tiny, real_engine, tmp_path / "run", **settings)
    arms = {arm["arm"]: arm for arm in summary["arms"]}
    assert list(arms) == ["none", "draft-mtp n=2", "draft-mtp+ngram-mod n=2"]
    assert arms["draft-mtp+ngram-mod n=2"]["kept"]["drafted"] > 0
    assert [row["arm"] for row in summary["known_answer"]] == ["draft-mtp n=2"]
    assert all(row["equal"] == row["of"] for row in summary["equal_text"])
