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

ERRORS = {"ttft_error_ms": 9.0, "worst_ttft_error_ms": 30.0, "rate_error": -0.02}


def written(folder: Path, *costs: dict[str, float | None]) -> Path:
    """A run of one round: for 1, 16 ... streams what each client cost; None: it failed."""
    peers_names = [peer.name for peer in peers.PEERS]
    clients = [name for name in (plan.OURS, *peers_names) if name in costs[0]]
    manifest = {
        "what": "bench-client",
        "rig": "a-rig",
        "started": "2026-01-01T00:00:00+00:00",
        "ended": "2026-01-01T00:01:00+00:00",
        "clients": clients,
        "versions": dict.fromkeys(clients[1:], "0.4.0"),
        "absent": {},
        "streams": list(plan.STREAMS[: len(costs)]),
        "rounds": 1,
        "schedule": {"chunks": 256, "rate": 50.0, "ttft_s": 0.05},
        "harness": {"commit": "0" * 40, "dirty": False},
        "host": {"cpu": "a CPU", "cores": 2, "memory_gib": 1.0, "kernel": "6.0"},
    }
    (folder / run.MANIFEST).write_text(json.dumps(manifest))
    lines = []
    for streams, found in zip(plan.STREAMS, costs, strict=False):
        for name, us in found.items():
            line: dict[str, Any] = {"round": 1, "client": name, "streams": streams}
            if us is None:
                line["failed"] = f"{name} 0.4.0 failed: no reason"
            else:
                line |= {"failed": None, "us_per_chunk": us, **ERRORS}
            lines.append(line)
    (folder / run.JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_the_verdict_is_the_share_of_the_lightest_peer(tmp_path: Path) -> None:
    """On a slow host every client costs more, and the verdict stays."""
    for times in (1, 20):
        costs: list[dict[str, float | None]] = [
            {plan.OURS: 4 * times, "llama-benchy": 40 * times, "aiperf": 80 * times},
            {plan.OURS: 4 * times, "llama-benchy": 80 * times, "aiperf": 20 * times},
        ]
        text = report.write(written(tmp_path, *costs)).read_text()
        assert "0.100 of llama-benchy's (1 at once), 0.200 of aiperf's (16 at once)" in text
        assert "at most 0.2 of the lightest peer's everywhere" in text
        assert "| 0.200 of aiperf's " in text
        assert bench.summarise(tmp_path)["verdict"] == "met"


def test_one_number_of_streams_is_enough_to_miss(tmp_path: Path) -> None:
    costs: list[dict[str, float | None]] = [
        {plan.OURS: 4, "llama-benchy": 40},
        {plan.OURS: 8.4, "llama-benchy": 40},
        {plan.OURS: 4, "llama-benchy": None},
    ]
    text = report.write(written(tmp_path, *costs)).read_text()
    assert "0.210 of llama-benchy's (16 at once); more than 0.2 of the lightest" in text
    assert bench.summarise(tmp_path)["verdict"] == "missed"


def test_what_was_not_beside_a_peer_has_no_verdict(tmp_path: Path) -> None:
    text = report.write(written(tmp_path, {plan.OURS: 400})).read_text()
    assert "costs 400.0 to 400.0 microseconds of CPU per chunk; no verdict" in text
    assert bench.summarise(tmp_path)["verdict"] is None
    some: list[dict[str, float | None]] = [
        {plan.OURS: 4, "aiperf": 40},
        {plan.OURS: 4, "aiperf": None},
    ]
    text = report.write(written(tmp_path, *some)).read_text()
    assert "no verdict, because a peer did not run at every number of streams" in text
    assert bench.summarise(tmp_path)["verdict"] is None


def test_how_far_from_the_truth_is_printed_and_not_judged(tmp_path: Path) -> None:
    text = report.write(written(tmp_path, {plan.OURS: 4, "aiperf": 40})).read_text()
    assert "| 1         | 9.000              | 30.000     | 2.0000%" in text
    assert bench.summarise(tmp_path)["verdict"] == "met"


def test_a_peer_that_failed_has_a_reason_and_no_figure(tmp_path: Path) -> None:
    text = report.write(written(tmp_path, {plan.OURS: 4, "llama-benchy": None})).read_text()
    assert "| failed" in text
    assert "llama-benchy 0.4.0 failed: no reason" in text
    (row,) = bench.summarise(tmp_path)["rows"]
    assert row["us_per_chunk"]["llama-benchy"] is None
    assert row["share"] is None


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
    assert summary["verdict"] is None
    assert bench_report.answer(summary) in capsys.readouterr().out


@pytest.mark.parametrize(("peers_us", "code"), [(20.0, 0), (19.0, 1)])
def test_the_exit_code_is_the_verdict(
    tiny: Rig, monkeypatch: pytest.MonkeyPatch, peers_us: float, code: int
) -> None:
    monkeypatch.setattr(bench_client, "at_hand", lambda _names: ([peers.PEERS[0]], {}))
    monkeypatch.setattr(plan, "ours", lambda *_: {"us_per_chunk": 4.0, **ERRORS})
    monkeypatch.setattr(plan, "theirs", lambda *_: {"us_per_chunk": peers_us})
    monkeypatch.setattr(sys, "argv", ["bench_client.py", str(tiny.folder)])
    assert bench_client.body() == code
