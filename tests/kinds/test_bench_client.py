"""make bench-client: its figures, its verdict, and peers that cannot be had."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from common import report
from common.errors import RigError
from common.kinds.bench_client import peers, plan
from common.kinds.bench_client import report as bench_report
from common.kinds.bench_client import summary as bench
from common.measure import run
from common.rig import Rig
from scripts import bench_client
from tests.helpers.runs import check

GOOD = {"ttft_error_ms": 0.02, "worst_ttft_error_ms": 30.0, "rate_error": -0.0001}


def written(folder: Path, us: float, benchy_us: float | None, **errors: float) -> Path:
    """A run of one round at one number of streams."""
    manifest = {
        "what": "bench-client",
        "started": "2026-01-01T00:00:00+00:00",
        "ended": "2026-01-01T00:01:00+00:00",
        "clients": [plan.OURS, "llama-benchy"],
        "versions": {"llama-benchy": "0.4.0"},
        "absent": {},
        "streams": [16],
        "rounds": 1,
        "schedule": {"chunks": 256, "rate": 50.0, "ttft_s": 0.05},
        "harness": {"commit": "0" * 40, "dirty": False},
        "host": {"cpu": "a CPU", "cores": 2, "kernel": "6.0"},
    }
    own = {"client": plan.OURS, "streams": 16, "failed": None, "us_per_chunk": us}
    theirs: dict[str, Any] = {"client": "llama-benchy", "streams": 16}
    if benchy_us is None:
        theirs["failed"] = "llama-benchy 0.4.0 failed: no reason"
    else:
        theirs |= {"failed": None, "us_per_chunk": benchy_us}
    (folder / run.MANIFEST).write_text(json.dumps(manifest))
    lines = [{**own, **GOOD, **errors}, theirs]
    (folder / run.JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_client_that_keeps_its_limits(tmp_path: Path) -> None:
    text = report.write(written(tmp_path, 4, 40)).read_text()
    assert "costs 4.0 to 4.0 microseconds" in text
    assert "at most 10% of llama-benchy's" in text
    assert "| 16        | 4.0 (4.0 to 4.0) | 40.0 (40.0 to 40.0) |" in text
    assert bench.summarise(tmp_path)["broken"] == []


@pytest.mark.parametrize(
    ("us", "benchy_us", "errors", "word"),
    [
        (11, 90, {}, "11.0 microseconds"),
        (9, 20, {}, "0.45 of llama-benchy"),
        (4, 40, {"ttft_error_ms": 3.0}, "TTFT off by 3.00 ms"),
        (4, 40, {"rate_error": -0.01}, "total rate off by 1.00%"),
    ],
)
def test_each_limit_can_be_broken(
    tmp_path: Path, us: float, benchy_us: float, errors: dict[str, float], word: str
) -> None:
    text = report.write(written(tmp_path, us, benchy_us, **errors)).read_text()
    assert f"does not keep its limits: {word}" in text


def test_a_peer_that_failed_has_a_reason_and_no_figure(tmp_path: Path) -> None:
    text = report.write(written(tmp_path, 4, None)).read_text()
    assert "| failed" in text
    assert "llama-benchy 0.4.0 failed: no reason" in text
    assert bench.summarise(tmp_path)["rows"][0]["us_per_chunk"]["llama-benchy"] is None


def test_a_peer_that_cannot_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    found, absent = bench_client.at_hand("llama-benchy")
    assert found == []
    assert absent["llama-benchy"].startswith("llama-benchy==0.4.0 cannot be installed: ")
    assert not peers.PEERS[0].installed
    with pytest.raises(RigError, match="PEERS=tea: expected"):
        bench_client.at_hand("tea")


def program(peer: peers.Peer, code: str) -> None:
    """Something else in the place of the peer's program."""
    path = peer.folder / "bin" / peer.name
    path.parent.mkdir(parents=True)
    path.write_text(f"#!{sys.executable}\n{code}")
    path.chmod(0o755)


def test_a_peers_cpu_is_that_of_all_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path))
    burn = "import time\nwhile time.process_time() < 0.5: pass\ntime.sleep(0.3)\n"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\n"
    program(peers.PEERS[0], code)
    samples = peers.PEERS[0].run("http://127.0.0.1:1", 1, 1)
    used = peers.cpu_between(samples, samples[0][0], samples[-1][0])
    assert 0.4 < used < 2
    middle = (samples[0][0] + samples[-1][0]) / 2
    halves = [
        peers.cpu_between(samples, samples[0][0], middle),
        peers.cpu_between(samples, middle, samples[-1][0]),
    ]
    assert sum(halves) == pytest.approx(used)
    with pytest.raises(RigError, match="was not running"):
        peers.cpu_between(samples, samples[0][0] - 1, middle)


def test_a_peer_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path))
    program(peers.PEERS[1], "raise SystemExit('no such option')")
    with pytest.raises(RigError, match=r"aiperf 0\.13\.0 failed: no such option"):
        peers.PEERS[1].run("http://127.0.0.1:1", 1, 1)


def test_the_whole_of_it(
    tiny: Rig,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(plan, "STREAMS", (2,))
    monkeypatch.setattr(plan, "RATE", 500.0)
    monkeypatch.setattr(bench, "MOST_US", 1e9)
    monkeypatch.setattr(bench, "MOST_TTFT_MS", 1e9)
    monkeypatch.setattr(bench, "MOST_RATE_ERROR", 1.0)
    monkeypatch.setenv("QUICK", "1")
    monkeypatch.setenv("PEERS", "")
    monkeypatch.setattr(sys, "argv", ["bench_client.py", str(tiny.folder)])
    assert bench_client.body() == 0
    (folder,) = tiny.runs_folder.iterdir()
    assert folder.name.endswith("-bench-client-cpu")
    (line,) = run.read_lines(folder, run.JOURNAL)
    assert line["us_per_chunk"] > 0
    check(run.JOURNAL, line)
    check(run.MANIFEST, run.read_manifest(folder))
    summary = json.loads((folder / report.SUMMARY).read_text())
    assert summary["complete"] is True
    assert bench_report.answer(summary) in capsys.readouterr().out
