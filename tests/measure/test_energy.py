"""Energy from the journal to the report: what trials drew, and what a token costs."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from common import kinds, report
from common.engines.llamacpp.build import Engine
from common.host import card, energy
from common.measure import loop, run
from common.rig import ROOT, Rig
from common.serving import client
from tests.helpers.run_script import Done, measure
from tests.helpers.runs import SPEED, SWEEP, copied
from tests.host.test_card import Stand, stand  # noqa: F401 (a stand-in for NVML)
from tests.host.test_energy import RANGE, domain

Fake = Callable[..., Engine]
BUILDS = SPEED.with_name("2026-11-29-builds-cpu")
# This one came to a confirmation.
TUNE = ROOT / "local-llamacpp-cpu-270m-q4_k_m" / "benchmarks" / "runs" / "2026-11-29-tune-cpu"
ABSENT = "Energy: no counter of it was read."
# The base of each arm's ratio, and what a token of it costs in a made-up run.
SETTINGS = {"none": 2.0, "n=1": 1.0, "n=2": 0.5, "n=3": 4.0}


def speed(rig: Rig, **environment: str) -> Done:
    return measure("speed", rig, **{"QUICK": "1", "SPEED_N_MAX": "2", **environment})


def lines(rig: Rig) -> list[dict[str, Any]]:
    (folder,) = rig.runs_folder.iterdir()
    return run.read_lines(folder, run.JOURNAL)


def summary(rig: Rig) -> dict[str, Any]:
    (folder,) = rig.runs_folder.iterdir()
    return dict(json.loads((folder / report.SUMMARY).read_text()))


def text(rig: Rig) -> str:
    (folder,) = rig.runs_folder.iterdir()
    return (folder / report.REPORT).read_text()


def drawing(monkeypatch: pytest.MonkeyPatch, draw: Callable[[int], object]) -> None:
    """Do `draw` with the number of the trial while its requests run; not for a server's check."""
    ask, count = client.ask, [0]

    def asked(*arguments: Any, **named: Any) -> list[client.Reply]:
        replies = ask(*arguments, **named)
        draw(count[0])
        count[0] += 1
        return replies

    monkeypatch.setattr(loop, "client", SimpleNamespace(ask=asked))


def test_packages_of_a_cpu_host(
    tiny: Rig, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials of 64 tokens: three without drafter at 6.4 J, three with it at 3.2, three again."""
    fake(rate="2000", speed_ups="2:1.25", accept="2,0")
    root = tmp_path / "powercap"
    root.mkdir()
    monkeypatch.setattr(energy, "POWERCAP", root)
    counter = domain(root, "intel-rapl:0", "package-0", RANGE - 10_000_000) / "energy_uj"

    def draw(trial: int) -> None:
        moved = int(counter.read_text()) + (3_200_000 if 3 <= trial < 6 else 6_400_000)
        counter.write_text(str(moved % RANGE))

    drawing(monkeypatch, draw)
    done = speed(tiny)
    assert done.code == 0, done.err
    assert [line["energy_j"] for line in lines(tiny)] == [6.4] * 3 + [3.2] * 3 + [6.4] * 3
    found = summary(tiny)["energy"]
    assert found["source"] == "RAPL package"
    none, two = found["arms"]
    assert (none["joules_per_token"], none["ratio"]) == (0.1, None)
    assert (two["joules_per_token"], two["ratio"]["ratio"]) == (0.05, 0.5)
    assert "| n=2   | 0.050     | none   | 0.500   | no interval | 3 of 3" in text(tiny)
    assert "all that the host does" in text(tiny)
    assert ABSENT not in text(tiny)


def test_a_card_that_is_lost_ends_the_run_and_the_trial_is_not_kept(
    tiny: Rig,
    fake: Fake,
    stand: Stand,  # noqa: F811 (the fixture)
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake(rate="2000")
    (present,) = card.cards()
    monkeypatch.setattr(card, "find", lambda _rig: present)

    def draw(trial: int) -> None:
        assert stand.energy_mj is not None
        stand.energy_mj += 128_000
        stand.lost = pynvml.NVML_ERROR_GPU_IS_LOST if trial == 4 else None

    drawing(monkeypatch, draw)
    done = speed(tiny)
    assert done.code == 1
    assert re.fullmatch(r"error: the card is lost \(NVML: .*RESUME=1\n", done.err)
    assert [line["energy_j"] for line in lines(tiny)] == [128] * 4
    stand.lost = None
    done = speed(tiny, RESUME="1")
    assert done.code == 0, done.err
    assert [line["energy_j"] for line in lines(tiny)] == [128] * 9
    assert [line["throttles"] for line in lines(tiny)] == [[]] * 9


def test_what_goes_on_with_a_run_keeps_to_its_source(
    tiny: Rig, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun where nothing can be read: that is all there is, even if more can be read later."""
    monkeypatch.setattr(energy, "POWERCAP", tmp_path / "powercap")
    fake(fault="cut:3", once=str(tmp_path / "done"))
    assert speed(tiny).code == 1
    (tmp_path / "powercap").mkdir()
    counter = domain(tmp_path / "powercap", "intel-rapl:0", "package-0", 0) / "energy_uj"
    drawing(monkeypatch, lambda trial: counter.write_text(f"{trial + 1}000000"))
    assert card.energy_source(None) == "RAPL package"
    done = speed(tiny, RESUME="1")
    assert done.code == 0, done.err
    assert {line["energy_j"] for line in lines(tiny)} == {None}
    assert summary(tiny)["energy"] is None
    assert ABSENT in text(tiny)
    assert "## Energy" not in text(tiny)


def drawn(source: Path, folder: Path, price: Callable[[str], float]) -> dict[str, Any]:
    """A committed run, copied, as if its arms had drawn so many joules per token; its summary."""
    copied(source, folder, lambda manifest: manifest.update(energy="NVML energy counter"))
    journal = run.read_lines(folder, run.JOURNAL)
    for line in journal:
        tokens = sum(sample["predicted_n"] or 0 for sample in line["samples"])
        line["energy_j"] = price(line["arm"]) * tokens
    (folder / run.JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in journal))
    kind = kinds.of(run.read_manifest(folder)["what"])
    found = kind.summarise(folder)
    kind.check(found)
    return found


def by_arm(found: dict[str, Any], place: str = "") -> dict[str, tuple[Any, Any, Any]]:
    return {
        arm["arm"]: (
            arm["joules_per_token"],
            arm["over"],
            arm["ratio"] and arm["ratio"]["ratio"],
        )
        for arm in found["energy"]["arms"]
        if arm["place"] == place
    }


def test_speed_is_over_no_drafter(tmp_path: Path) -> None:
    found = drawn(SPEED, tmp_path / "run", SETTINGS.__getitem__)
    assert by_arm(found) == {
        "none": (2, None, None),
        **{arm: (SETTINGS[arm], "none", SETTINGS[arm] / 2) for arm in ("n=1", "n=2", "n=3")},
    }


def test_builds_is_over_no_drafter_in_the_same_build(tmp_path: Path) -> None:
    prices = {"none": 4.0, "n=2": 2.0, "other none": 3.0, "other n=2": 1.0}
    assert by_arm(drawn(BUILDS, tmp_path / "run", prices.__getitem__)) == {
        "none": (4, None, None),
        "n=2": (2, "none", 0.5),
        "other none": (3, "none", 0.75),
        "other n=2": (1, "other none", 0.333333),
    }


def test_sweep_is_over_no_drafter_at_each_number_of_requests(tmp_path: Path) -> None:
    def price(arm: str) -> float:
        return (2.0 if arm.startswith("none") else 1.0) * (3 if arm.endswith("shared") else 1)

    found = drawn(SWEEP, tmp_path / "run", price)
    places = {arm["place"] for arm in found["energy"]["arms"]}
    assert {"mixed, 1 at once", "mixed, 4 at once"} <= places
    for place in places:
        assert by_arm(found, place) == {
            "none, per-slot": (2, None, None),
            "drafter, per-slot": (1, "none, per-slot", 0.5),
            "none, shared": (6, None, None),
            "drafter, shared": (3, "none, shared", 0.5),
        }


def test_tune_prices_each_lever_and_the_confirmation(tmp_path: Path) -> None:
    found = drawn(TUNE, tmp_path / "run", lambda arm: 2.0 if arm.startswith("none") else 0.5)
    stages = [stage for stage in found["stages"] if not stage["skipped"]]
    assert stages
    for stage in stages:
        own = by_arm(found, stage["lever"])
        assert list(own) == [row["arm"] for row in stage["rows"]]
        base = own[stage["over"]][0]
        for arm, (price, over, ratio) in own.items():
            expected = (None, None) if arm == stage["over"] else (stage["over"], price / base)
            assert (over, ratio) == expected
    confirmed = by_arm(found, "confirmation")
    assert list(confirmed) == [row["arm"] for row in found["confirm"]["rows"]]
    assert {ratio for _, over, ratio in confirmed.values() if over} == {0.25}


@pytest.mark.parametrize("source", [SPEED, SWEEP, BUILDS, TUNE], ids=lambda path: path.name)
def test_the_report_and_compare_say_it_where_it_was_measured(source: Path, tmp_path: Path) -> None:
    for folder, measured in ((tmp_path / "with", True), (tmp_path / "without", False)):
        found = drawn(source, folder, lambda _arm: 0.25)
        if not measured:
            found["energy"] = None
        manifest = run.read_manifest(folder)
        kind = kinds.of(manifest["what"])
        page = kind.render(found, manifest, folder)
        assert ("## Energy" in page, ABSENT in page) == (measured, not measured)
        rows = kind.figures(found, manifest)
        prices = [row for row in rows if row["quantity"] == "energy_per_token"]
        assert {(row["value"], row["unit"], row["note"]) for row in prices} == (
            {(0.25, "J/token", "NVML energy counter")} if measured else set()
        )
        ratios = [row["value"] for row in rows if row["quantity"] == "energy_ratio"]
        assert set(ratios) == ({1.0} if measured else set())


def test_a_trial_without_energy_does_not_tilt_the_ratio(tmp_path: Path) -> None:
    """Cells differ tenfold in what a token costs; the dear one is lost in one arm's first round."""
    folder = copied(SPEED, tmp_path / "run", lambda m: m.update(energy="NVML energy counter"))
    journal = run.read_lines(folder, run.JOURNAL)
    dear = journal[0]["cell"]
    for line in journal:
        (sample,) = line["samples"]
        price = SETTINGS[line["arm"]] * (10 if line["cell"] == dear else 1)
        line["energy_j"] = price * sample["predicted_n"]
    lost = next(line for line in journal if line["arm"] == "n=1" and line["cell"] == dear)
    lost["energy_j"] = None
    (folder / run.JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in journal))
    found = kinds.of("speed").summarise(folder)
    none, one, *_ = found["energy"]["arms"]
    assert one["measured"] == one["of"] - 1 == none["measured"] - 1
    assert one["ratio"]["ratio"] == 0.5
    assert one["joules_per_token"] / none["joules_per_token"] < 0.5
