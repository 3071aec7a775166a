"""What every measuring script shares: what is prepared, and what is said when it is stopped."""

from collections.abc import Callable
from pathlib import Path

import pytest

from common import report
from common.engines.llamacpp.build import Engine
from common.rig import Rig
from scripts import _measuring, _preparing, measure
from tests.conftest import Run

Fake = Callable[..., Engine]


def run_of(rig: Rig) -> Path:
    (folder,) = rig.runs_folder.iterdir()
    return folder


def test_stopped_while_the_report_is_written_it_says_how_to_make_it(
    tiny: Rig, fake: Fake, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_folder: Path) -> Path:
        raise KeyboardInterrupt

    fake()
    monkeypatch.setenv("QUICK", "1")
    monkeypatch.setenv("SPEED_N_MAX", "2")
    monkeypatch.setattr(report, "write", stopped)
    code, out, err = run(measure.body, tiny, "speed")
    assert code == 130
    assert f"all is measured; make report RUN={run_of(tiny)} makes the report" in out
    assert "RESUME" not in out + err
    monkeypatch.undo()
    assert "n=2" in report.write(run_of(tiny)).read_text()


def test_a_measurement_that_counts_tokens_prepares_once(
    tiny: Rig, fake: Fake, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def prepare(rig: Rig) -> Engine:
        calls.append(rig.name)
        return fake()

    fake()
    monkeypatch.setattr(_preparing, "prepare", prepare)
    monkeypatch.setattr(_measuring, "prepare", prepare)
    monkeypatch.setenv("QUICK", "1")
    monkeypatch.setenv("LONGCTX_DEPTHS", "0")
    monkeypatch.setenv("LONGCTX_N_MAX", "2")
    code, _out, err = run(measure.body, tiny, "longctx")
    assert code == 0, err
    assert calls == [tiny.name]
