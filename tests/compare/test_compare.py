"""make compare: ratios between equals, what differs for all else, and folders that are no run."""

import json
import math
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common import report
from common.compare import compare, runs
from common.compare import page as compare_page
from common.errors import RigError
from common.measure import run
from scripts import compare as compare_script
from tests.helpers.runs import REPACK, SPEED, SWEEP, change_summary, copied, on_card

Manifest = dict[str, Any]


def pair_of(a: Path, b: Path) -> dict[str, Any]:
    (pair,) = compare.compare([a, b])["pairs"]
    return dict(pair)


def ratios(pair: dict[str, Any], quantity: str) -> dict[str, dict[str, Any]]:
    return {row["arm"]: row for row in pair["ratios"] if row["quantity"] == quantity}


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return copied(SPEED, tmp_path / "plain" / "2026-12-01-speed-cpu")


def test_a_known_ratio_between_two_cards(plain: Path, tmp_path: Path) -> None:
    """Every speed is 1.5 times the other's, so the ratio is, and drafting gains the same."""
    fast = copied(SPEED, tmp_path / "fast", on_card, lambda _trial: 1.5)
    pair = pair_of(plain, fast)
    assert (pair["between"], pair["refused"]) == ("hardware", [])
    times = 1.5 if "fast" in pair["first"] else 1 / 1.5
    speeds, gains = ratios(pair, "tokens_per_second"), ratios(pair, "speed_up")
    assert list(speeds) == ["none", "n=1", "n=2", "n=3"]
    assert list(gains) == ["n=1", "n=2", "n=3"]
    for row in speeds.values():
        assert [row[key] for key in ("low", "ratio", "high")] == pytest.approx([times] * 3, 1e-5)
    for row in gains.values():
        assert [row[key] for key in ("low", "ratio", "high")] == pytest.approx([1] * 3, abs=1e-5)


def test_the_interval_is_paired_by_cell(plain: Path, tmp_path: Path) -> None:
    """Cells that differ by known factors: mean and interval by hand, 5 degrees of freedom."""
    cells = ["code", "advice", "story", "explanation", "list", "summary"]
    logs = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    fast = copied(
        SPEED, tmp_path / "fast", on_card, lambda trial: math.exp(logs[cells.index(trial["cell"])])
    )
    pair = pair_of(plain, fast)
    row = ratios(pair, "tokens_per_second")["n=2"]
    sign = 1 if "fast" in pair["first"] else -1
    half = 2.570582 * math.sqrt(0.035) / math.sqrt(6)
    found = sorted(math.log(row[key]) * sign for key in ("low", "ratio", "high"))
    assert found == pytest.approx([0.35 - half, 0.35, 0.35 + half], abs=1e-4)


def test_a_gain_that_only_one_card_has(plain: Path, tmp_path: Path) -> None:
    other = copied(
        SPEED, tmp_path / "other", on_card, lambda trial: 1.25 if trial["arm"] == "n=2" else 1.0
    )
    pair = pair_of(plain, other)
    times = 1.25 if "other" in pair["first"] else 1 / 1.25
    gains = ratios(pair, "speed_up")
    assert gains["n=2"]["ratio"] == pytest.approx(times, 1e-5)
    assert gains["n=1"]["ratio"] == pytest.approx(1, 1e-5)


def test_a_sweep_is_compared_place_by_place(tmp_path: Path) -> None:
    fast = copied(SWEEP, tmp_path / "fast", on_card, lambda _trial: 2.0)
    pair = pair_of(copied(SWEEP, tmp_path / "plain"), fast)
    times = 2.0 if "fast" in pair["first"] else 0.5
    places = {row["place"] for row in pair["ratios"]}
    assert {"mixed, 1 at once", "mixed, 2 at once"} <= places
    for row in pair["ratios"]:
        wanted = times if row["quantity"] == "tokens_per_second" else 1
        assert row["ratio"] == pytest.approx(wanted, 1e-5)
    arms = {row["arm"] for row in pair["ratios"] if row["quantity"] == "speed_up"}
    assert arms == {"drafter, per-slot", "drafter, shared"}


def test_the_same_hardware_is_a_repeat(plain: Path, tmp_path: Path) -> None:
    pair = pair_of(plain, copied(SPEED, tmp_path / "again"))
    assert (pair["between"], pair["refused"]) == ("repeats", [])
    assert ratios(pair, "tokens_per_second")["none"]["ratio"] == 1


def engine(manifest: Manifest) -> None:
    manifest["engine"]["source"] |= {"version": "11500.0.0", "sha256": "5" * 64}


def unknown_engine(manifest: Manifest) -> None:
    manifest["engine"] = {}


def commit(manifest: Manifest) -> None:
    manifest["engine"]["source"] = {
        "kind": "git",
        "version": "77c4540ce",
        "origin": "x",
        "sha256": None,
        "commit": "77c4540ce" + "0" * 31,
    }


def flags(manifest: Manifest) -> None:
    manifest["engine"]["cmake"].append("-DGGML_NATIVE=OFF")


def model(manifest: Manifest) -> None:
    manifest["files"]["model"]["sha256"] = "0" * 64


def no_model(manifest: Manifest) -> None:
    del manifest["files"]["model"]


def words(manifest: Manifest) -> None:
    manifest["prompts_sha256"] = "0" * 64


def request(manifest: Manifest) -> None:
    manifest["plan"]["cells"]["code"]["requests"][0]["max_tokens"] = 128


def sampling(manifest: Manifest) -> None:
    manifest["plan"]["rounds"]["greedy-1"]["sampling"]["seed"] = 2


def quick(manifest: Manifest) -> None:
    manifest["plan"]["quick"] = True


def dirty(manifest: Manifest) -> None:
    manifest["harness"]["dirty"] = True


def unknown_code(manifest: Manifest) -> None:
    manifest["harness"] = {"commit": None, "dirty": None}


def context(manifest: Manifest) -> None:
    manifest["settings"]["CTX_SIZE"] = "4096"


def lever(manifest: Manifest) -> None:
    manifest["settings"]["SOME_LATER_LEVER"] = "512"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (engine, r"engine: embedded (11500|2026)\S+ .* and embedded (11500|2026)"),
        (unknown_engine, "engine: not known"),
        (commit, "commit 77c4540ce"),
        (flags, "build flags differ"),
        (model, "model file: .*000000000000"),
        (no_model, "model file: not known"),
        (words, "prompts: .*000000000000"),
        (request, "requests: code"),
        (sampling, "rounds differ"),
        (quick, "length: (full and quick|quick and full)"),
        (dirty, "was measured with changed code"),
        (unknown_code, "does not say which code measured it"),
        (context, "CTX_SIZE: .*4096"),
        (lever, "SOME_LATER_LEVER: .*absent"),
    ],
)
def test_what_is_not_equal_gives_no_ratio(
    plain: Path, tmp_path: Path, change: Callable[[Manifest], None], said: str
) -> None:
    def both(manifest: Manifest) -> None:
        on_card(manifest)
        change(manifest)

    pair = pair_of(plain, copied(SPEED, tmp_path / "other", both, lambda _trial: 1.5))
    assert pair["ratios"] == []
    assert any(re.search(said, reason) for reason in pair["refused"]), pair["refused"]


def test_what_an_arm_changes_refuses_that_arm_only(plain: Path, tmp_path: Path) -> None:
    def change(manifest: Manifest) -> None:
        on_card(manifest)
        manifest["plan"]["arms"]["n=3"]["SPEC_DRAFT_N_MAX"] = "4"

    pair = pair_of(plain, copied(SPEED, tmp_path / "other", change))
    found = ratios(pair, "tokens_per_second")
    assert pair["refused"] == []
    assert found["n=2"]["ratio"] == 1
    assert found["n=3"]["ratio"] is None
    assert "SPEC_DRAFT_N_MAX" in found["n=3"]["refused"][0]


def test_another_drafter_refuses_the_drafting_arms(plain: Path, tmp_path: Path) -> None:
    def change(manifest: Manifest) -> None:
        on_card(manifest)
        manifest["files"]["drafter"]["sha256"] = "0" * 64

    found = ratios(pair_of(plain, copied(SPEED, tmp_path / "other", change)), "tokens_per_second")
    assert found["none"]["ratio"] == 1
    for arm in ("n=1", "n=2", "n=3"):
        assert found[arm]["ratio"] is None
        assert found[arm]["refused"][0].startswith("drafter file")


def test_what_need_not_be_equal_is_said(plain: Path, tmp_path: Path) -> None:
    def change(manifest: Manifest) -> None:
        manifest["harness"]["commit"] = "0" * 40
        manifest["host"]["kernel"] = "5.4.0"
        manifest["image"] = "sha256:1"
        manifest["settings"] |= {"PORT": "9999", "SWEEP_PARALLEL": "64"}

    def slower(trial: dict[str, Any]) -> float:
        return 0.9 if trial["round"] == "drift" else 1.0

    pair = pair_of(plain, copied(SPEED, tmp_path / "other", change, slower))
    assert pair["refused"] == []
    assert ratios(pair, "tokens_per_second")["none"]["ratio"] == 1
    said = "; ".join(pair["labels"])
    for word in ("harness commit", "kernel", "run in", "known-answer pair", "drift "):
        assert word in said


def test_a_summary_changed_by_hand_is_called_so(plain: Path, tmp_path: Path) -> None:
    other = copied(SPEED, tmp_path / "other", on_card)
    change_summary(other, lambda summary: summary["arms"][0].update(tokens_per_second=9999.0))
    found = compare.compare([plain, other])
    (pair,) = found["pairs"]
    assert pair["ratios"] == []
    assert "changed after measuring" in pair["refused"][0]
    labels = {one["run"]: one["labels"] for one in found["runs"]}
    assert sum(runs.NOT_GIVEN in said for said in labels.values()) == 1
    # The figures are made from the journal, so the changed one is not repeated.
    assert 9999.0 not in [row["value"] for row in found["figures"]]
    assert "9999" not in compare_page.markdown(found)


def test_no_run_at_all() -> None:
    with pytest.raises(RigError, match="no finished run to compare"):
        compare.compare([])


def test_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="is not a run directory"):
        compare.compare([tmp_path])
    (tmp_path / run.MANIFEST).write_text("[]")
    with pytest.raises(RigError):
        compare.compare([tmp_path])


def test_a_name_that_is_not_text(plain: Path) -> None:
    odd = plain.rename(plain.with_name("r\udcff"))
    with pytest.raises(RigError, match="not UTF-8"):
        runs.read(odd)


def test_an_unfinished_run(plain: Path) -> None:
    manifest = run.read_manifest(plain)
    (plain / run.MANIFEST).write_text(json.dumps({**manifest, "ended": None}))
    with pytest.raises(RigError, match="unfinished; continue it with RESUME=1"):
        compare.compare([plain])


def test_a_kind_of_a_later_version(plain: Path) -> None:
    manifest = run.read_manifest(plain)
    (plain / run.MANIFEST).write_text(json.dumps({**manifest, "what": "tea"}))
    with pytest.raises(RigError, match="kind 'tea', which this version does not know"):
        compare.compare([plain])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "make report RUN="),
        ("{", "cannot be read"),
        ("[1]", "cannot be read"),
        ('{"what": "speed", "schema": 1}', "version 1"),
        ('{"what": "speed"}', "version None"),
        ('{"what": "speed", "schema": 2}', "is not as its schema says"),
    ],
)
def test_a_summary_that_cannot_be_read(plain: Path, text: str | None, said: str) -> None:
    path = plain / report.SUMMARY
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(RigError, match=said):
        compare.compare([plain])


def test_a_journal_that_cannot_be_read(plain: Path) -> None:
    journal = (plain / run.JOURNAL).read_text()
    (plain / run.JOURNAL).write_text("{" + journal)
    with pytest.raises(RigError, match=r"samples\.jsonl, line 1 is damaged"):
        compare.compare([plain])
    (plain / run.JOURNAL).unlink()
    with pytest.raises(RigError, match="do not fit together"):
        compare.compare([plain])


def test_a_manifest_with_a_part_missing(plain: Path) -> None:
    manifest: Any = run.read_manifest(plain)
    del manifest["host"]
    (plain / run.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(RigError, match=r"manifest.json is damaged \(.*host"):
        compare.compare([plain])


def test_the_same_run_twice(plain: Path, tmp_path: Path) -> None:
    copy = tmp_path / "brought"
    shutil.copytree(plain, copy)
    for twin in (plain, copy):
        with pytest.raises(RigError, match="the same run; leave one of them out"):
            compare.compare([plain, twin])


def test_two_hosts_with_folders_of_one_name(plain: Path, tmp_path: Path) -> None:
    other = copied(SPEED, tmp_path / "host-b" / plain.name, on_card, lambda _trial: 1.5)
    names = [one["run"] for one in compare.compare([plain, other])["runs"]]
    assert len(set(names)) == 2
    assert all(re.search("@[0-9a-f]{6}$", name) for name in names)


def test_a_kind_without_figures_is_listed(plain: Path) -> None:
    found = compare.compare([REPACK, plain])
    page = compare_page.markdown(found)
    assert "## Other runs" in page
    assert "The exact repack of" in page


def test_published_beside_measured(tmp_path: Path) -> None:
    """A run as the study's would be: the ratio where no prompt of the study's own decides."""

    def change(manifest: Manifest) -> None:
        on_card(manifest)
        commit(manifest)
        manifest["rig"] = "local-llamacpp-3050oem-2b-q4_0"
        manifest["engine"]["cuda_version"] = "13.4.1"
        manifest["settings"] |= {"N_GPU_LAYERS": "99", "CTX_SIZE": "8192"}

    def published(folder: Path) -> dict[str, Any]:
        rows = compare.compare([folder])["published"]
        return {
            row["title"]: row["beside"]
            for row in rows
            if row["rig"] == "local-llamacpp-3050oem-2b-q4_0" and row["beside"]
        }

    found = published(copied(SPEED, tmp_path / "study", change))
    speed = found["no drafter"]
    assert speed["refused"] == []
    assert speed["ratio"]["ratio"] == pytest.approx(speed["value"] / 108.2, 1e-5)
    up = found["speed-up at the best draft length"]
    assert (up["arm"], up["ratio"]) == ("n=2", None)
    assert up["refused"] == ["prompts: this project's own, not the study's"]

    def other(manifest: Manifest) -> None:
        change(manifest)
        manifest["settings"]["CTX_SIZE"] = "4096"
        manifest["card"]["power_limit_w"] = 80.0

    speed = published(copied(SPEED, tmp_path / "other", other))["no drafter"]
    assert speed["ratio"] is None
    assert {said.partition(":")[0] for said in speed["refused"]} == {"power limit", "CTX_SIZE"}

    def plain(manifest: Manifest) -> None:
        manifest["rig"] = "local-llamacpp-3050oem-2b-q4_0"

    speed = published(copied(SPEED, tmp_path / "cpu", plain))["no drafter"]
    assert speed["ratio"] is None
    assert {"card", "engine"} <= {said.partition(":")[0] for said in speed["refused"]}


def test_make_compare(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["compare.py", str(plain), "--out", str(out)])
    compare_script.body()
    assert sorted(path.name for path in out.iterdir()) == [
        "COMPARE.md",
        "compare.csv",
        "compare.html",
    ]
    assert "1 finished run of 1 rig" in capsys.readouterr().out


def test_a_damaged_run_does_not_keep_the_others_from_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "a-rig" / "benchmarks" / "runs"
    copied(SPEED, home / "done")
    torn = copied(SPEED, home / "torn") / run.JOURNAL
    torn.write_text(torn.read_text().replace("\n", "\n{\n", 3))
    (copied(SPEED, home / "lost") / run.MANIFEST).write_text("{")
    monkeypatch.setattr(runs, "ROOT", tmp_path)
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["compare.py", "--out", str(out)])
    compare_script.body()
    said = capsys.readouterr().out
    assert "1 finished run of 1 rig" in said
    assert f"left out: {torn}, line 2 is damaged" in said
    assert f"left out: {home / 'lost' / run.MANIFEST} is damaged" in said
    assert "## Speed" in (out / compare_page.MARKDOWN).read_text()
    monkeypatch.setattr(sys, "argv", ["compare.py", str(torn.parent), "--out", str(out)])
    with pytest.raises(RigError, match="line 2 is damaged"):
        compare_script.body()


def test_all_finished_runs_are_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "a-rig" / "benchmarks" / "runs"
    done = copied(SPEED, home / "done")
    stopped = copied(SPEED, home / "stopped", lambda manifest: manifest.update(ended=None))
    bare = copied(SPEED, home / "bare")
    (bare / report.SUMMARY).unlink()
    assert stopped.is_dir()
    monkeypatch.setattr(runs, "ROOT", tmp_path)
    assert runs.finished() == [done]
