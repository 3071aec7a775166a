"""make builds: its arms, which engine each runs on, its figures, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common import report, rig
from common.engines.llamacpp import build, compiling, serve, source
from common.engines.llamacpp.build import Engine
from common.errors import RigError
from common.kinds.builds import plan as builds
from common.measure import run
from common.rig import ROOT, Rig
from common.rigs.cards import CUDA_VERSION
from tests.helpers.run_script import Done, measure, measure_as_process

FLAG = "-DGGML_CPU_REPACK=OFF"
GPU_RIG = "local-llamacpp-1650ti-2b-q4_0"


def put_engine(rig: Rig, fake_program: Path, **settings: str) -> Path:
    """An engine in the cache, as if built for the rig: the fake, with these FAKE_ settings."""
    (origin,) = source.wanted(rig)
    home = build.folder(rig, origin)
    home.mkdir(parents=True)
    fakes = " ".join(f"FAKE_{key.upper()}={value}" for key, value in settings.items())
    program = home / "llama-server"
    program.write_text(f'#!/bin/sh\nexec env {fakes} "{fake_program}" "$@"\n')
    program.chmod(0o755)
    info = {
        "source": {"kind": "release", "version": "1", "origin": "it"},
        "backend": "cpu",
        "cuda_version": None,
        "cmake": compiling.cmake_flags(rig),
        "version": ["version: 1", "built with fakes"],
        "server_sha256": str(len(settings)) * 64,
    }
    (home / build.INFO).write_text(json.dumps(info))
    return home


@pytest.fixture
def tiny(tiny: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """The rig with an engine compiled here, beside another compiled with FLAG."""
    source = {"ENGINE": "source", "BUILDS_ENGINE": "", "BUILDS_CMAKE_EXTRA": FLAG}
    for key, text in source.items():
        monkeypatch.setenv(key, text)
    return tiny.variant(source)


@pytest.fixture
def two(tiny: Rig, fake_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with both builds of the tiny rig; the other is faster. Its folder is returned."""
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))
    put_engine(tiny, fake_program, rate="2000", speed_ups="2:1.5")
    other = tiny.variant({"CMAKE_EXTRA": FLAG})
    return put_engine(other, fake_program, rate="2500", speed_ups="2:0.8", accept="2,0")


def finish(rig: Rig, **settings: str) -> Done:
    return measure("builds", rig, **{"QUICK": "1", **settings})


def folder(rig: Rig) -> Path:
    (found,) = rig.runs_folder.iterdir()
    return found


@pytest.mark.parametrize("name", sorted(path.name for path in rig.all_rigs()))
def test_every_rig_names_another_build(name: str) -> None:
    mine = rig.load(ROOT / name, {})
    assert builds.changes(mine)


def test_the_other_build_of_a_card_without_tensor_cores() -> None:
    mine = rig.load(ROOT / GPU_RIG, {})
    other = mine.variant(builds.changes(mine))
    assert (mine.cuda_version, mine.cuda_architectures) == (CUDA_VERSION, ("75-real",))
    assert other.cuda_version == "12.8.1"
    flags = compiling.cmake_flags(other)
    assert "-DCMAKE_CUDA_ARCHITECTURES=61-virtual;80-virtual" in flags
    assert "-DGGML_CUDA_FORCE_MMQ=ON" in flags


def test_a_setting_left_empty_is_the_rigs_own() -> None:
    mine = rig.load(ROOT / GPU_RIG, {})
    same = {"BUILDS_CUDA_ARCHITECTURES": "", "BUILDS_CMAKE_EXTRA": ""}
    assert builds.changes(mine.variant(same)) == {"CUDA_VERSION": "12.8.1"}
    with pytest.raises(RigError, match="the other build is the rig's own; set BUILDS_CUDA"):
        builds.changes(mine.variant({**same, "BUILDS_CUDA_VERSION": ""}))
    with pytest.raises(RigError, match="the other build is the rig's own"):
        builds.changes(mine.variant({**same, "BUILDS_CUDA_VERSION": str(mine.cuda_version)}))


def test_a_cpu_knows_no_cuda(tiny: Rig) -> None:
    with pytest.raises(RigError, match="the other build is the rig's own"):
        builds.changes(tiny.variant({"BUILDS_CMAKE_EXTRA": "", "BUILDS_CUDA_VERSION": "12.8.1"}))


def test_arms_are_both_builds_with_and_without_the_drafter(tiny: Rig) -> None:
    second = Engine(Path("/other/llama-server"), {"cmake": []})
    arms = {arm.name: arm for arm in builds.arms(tiny, second)}
    assert list(arms) == ["none", "n=2", "other none", "other n=2"]
    assert [arm.engine for arm in arms.values()] == [None, None, second, second]
    assert arms["n=2"].changes == {}
    assert arms["other none"].changes == {"SPEC_TYPE": "", "CMAKE_EXTRA": FLAG}
    without = [arm.name for arm in builds.arms(tiny.variant({"SPEC_TYPE": ""}), second)]
    assert without == ["none", "other none"]
    ngram = tiny.variant({"SPEC_TYPE": "ngram-mod,ngram-simple"})
    assert builds.arms(ngram, second)[1].name == "ngram-mod+ngram-simple"


def test_figures_by_hand(tiny: Rig, two: Path) -> None:
    assert two.is_dir()
    code, out, err = finish(tiny)
    assert (code, err) == (0, "")
    summary: dict[str, Any] = json.loads((folder(tiny) / report.SUMMARY).read_text())
    arms = {arm["arm"]: arm for arm in summary["arms"]}
    speeds = {name: arm["tokens_per_second"] for name, arm in arms.items()}
    assert speeds == {"none": 2000, "n=2": 3000, "other none": 2500, "other n=2": 2000}
    assert arms["other none"]["over_rig"]["ratio"] == 1.25
    assert arms["other none"]["over_rig"]["verdict"] == "unknown"
    assert arms["other n=2"]["over_rig"]["ratio"] == 0.666667
    assert arms["n=2"]["speed_up"]["ratio"] == 1.5
    assert arms["other n=2"]["speed_up"]["ratio"] == 0.8
    assert arms["n=2"]["over_rig"] is None
    assert arms["none"]["speed_up"] is None
    assert arms["other none"]["speed_up"] is None
    assert arms["other none"]["kept"] is None
    assert arms["n=2"]["kept"]["share"] < arms["other n=2"]["kept"]["share"]
    assert arms["other n=2"]["equal_rig"] == {"equal": 3, "of": 3}
    assert [row["drafter"] for row in summary["cells"]] == ["none", "n=2"] * 3
    assert summary["cells"][0]["over_rig"] == 1.25
    assert [row["flags"] for row in summary["builds"]] == [[], [FLAG]]
    text = (folder(tiny) / report.REPORT).read_text()
    answer = (
        f"over the rig's own build the other ({FLAG}) is unclear without drafter (1.250x, no "
        "interval), unclear with n=2 (0.667x, no interval). Over no drafter, in the rig's own "
        "build n=2 runs at 1.500x (unknown), in the other build n=2 runs at 0.800x (unknown)."
    )
    assert answer in text
    assert answer in out
    assert f"make longctx CMAKE_EXTRA={FLAG}" in text
    assert "not run on a card" in text


def test_each_arm_ran_on_its_own_engine_and_the_manifest_says_which(tiny: Rig, two: Path) -> None:
    assert finish(tiny).code == 0
    manifest = run.read_manifest(folder(tiny))
    info = json.loads((two / build.INFO).read_text())
    assert manifest["engines"] == {"other none": info, "other n=2": info}
    assert manifest["engine"]["server_sha256"] != info["server_sha256"]
    for start in run.read_lines(folder(tiny), run.STARTS):
        assert (start["command"][0] == str(two / "llama-server")) == ("other" in start["arm"])


def test_image_digests_are_recorded(tiny: Rig, two: Path) -> None:
    assert two.is_dir()
    digests = {"RIG_IMAGE_DIGEST": "sha256:1", "OTHER_IMAGE_DIGEST": "sha256:2"}
    assert measure_as_process("builds", tiny, QUICK="1", **digests).code == 0
    summary = json.loads((folder(tiny) / report.SUMMARY).read_text())
    assert [row["image"] for row in summary["builds"]] == ["sha256:1", "sha256:2"]
    assert "`sha256:2`" in (folder(tiny) / report.REPORT).read_text()


def test_resume_with_another_engine_is_refused(
    tiny: Rig,
    two: Path,
    fake: Callable[..., Engine],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    fake(fault="error:3", once=str(tmp_path / "done"))
    monkeypatch.delenv("LLAMA_SERVER")
    assert finish(tiny).code == 1
    info = json.loads((two / build.INFO).read_text())
    changed = {**info, "server_sha256": "f" * 64}
    (two / build.INFO).write_text(json.dumps(changed))
    code, _out, err = finish(tiny, RESUME="1")
    assert code == 1
    assert f"server_sha256 was '{info['server_sha256']}', is now '{'f' * 64}'" in err
    (two / build.INFO).write_text(json.dumps(info))
    code, _out, err = finish(tiny, RESUME="1")
    assert code == 0, err


def test_one_llama_server_is_not_two_builds(tiny: Rig, two: Path) -> None:
    code, _out, err = finish(
        tiny, LLAMA_SERVER=str(two / "llama-server"), BUILDS_CMAKE_EXTRA="-DX=1"
    )
    assert code == 1
    assert "is not the build that the BUILDS_ settings ask for; unset LLAMA_SERVER" in err


def test_engines_of_two_sources_are_not_compared(tiny: Rig) -> None:
    other = tiny.variant({"CMAKE_EXTRA": FLAG})
    info = {"cmake": compiling.cmake_flags(other), "cuda_version": None, "backend": "cpu"}
    kinds = ({"kind": "git", "version": version, "origin": "there"} for version in "ab")
    own, second = (Engine(Path("/x"), {**info, "source": kind}) for kind in kinds)
    with pytest.raises(RigError, match=r"not of one source: llama\.cpp commit a, cpu and"):
        builds.check(other, own, second)
    builds.check(other, own, Engine(Path("/y"), own.info))


def test_two_cuda_versions_need_two_images() -> None:
    mine = rig.load(ROOT / GPU_RIG, {})
    with pytest.raises(RigError, match=r"CUDA 13\.4\.1 and 12\.8\.1.*RUNNER=docker make builds"):
        builds.check_place(mine, mine.variant(builds.changes(mine)))
    builds.check_place(mine, mine.variant({"CMAKE_EXTRA": "-DGGML_CUDA_FORCE_MMQ=ON"}))


def test_a_container_holds_both_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = rig.load(ROOT / GPU_RIG, {})
    other = mine.variant(builds.changes(mine))
    for name, built in (("bin", mine), ("other", other)):
        home = tmp_path / name
        home.mkdir()
        (home / "llama-server").touch()
        info = {
            "source": {"kind": "git", "version": "1", "origin": "it"},
            "backend": "cuda",
            "cmake": compiling.cmake_flags(built),
            "cuda_version": built.cuda_version,
        }
        (home / build.INFO).write_text(json.dumps(info))
    (tmp_path / "other" / "lib").mkdir()
    monkeypatch.setattr(build, "CONTAINER", tmp_path / "bin" / "llama-server")
    monkeypatch.setattr(build, "OTHER", tmp_path / "other" / "llama-server")
    own, second = build.find(mine), build.find(other)
    assert own.server == tmp_path / "bin" / "llama-server"
    assert second.server == tmp_path / "other" / "llama-server"
    # What it was linked with comes before what the image has.
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/local/nvidia/lib")
    assert own.libraries is None
    assert serve.environment(own.libraries)["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib"
    lib = tmp_path / "other" / "lib"
    assert serve.environment(second.libraries)["LD_LIBRARY_PATH"] == f"{lib}:/usr/local/nvidia/lib"
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert serve.environment(second.libraries)["LD_LIBRARY_PATH"] == str(lib)
    # The same flags on another CUDA are another build.
    older = mine.variant({"CUDA_VERSION": "12.9.1"})
    assert build.find(older).server == own.server
    with pytest.raises(RigError, match="is not the build"):
        builds.check(older, own, build.find(older))


def test_the_embedded_engine_as_the_other_build(
    tiny: Rig, two: Path, real_engine: Engine, tmp_path: Path
) -> None:
    assert two.is_dir()
    # The cache with the fakes gets the real embedded engine too.
    (tmp_path / "cache" / "engines" / real_engine.server.parent.name).symlink_to(
        real_engine.server.parent
    )
    code, _out, err = finish(tiny, BUILDS_ENGINE="embedded", BUILDS_CMAKE_EXTRA="")
    assert (code, err) == (0, "")
    manifest = run.read_manifest(folder(tiny))
    assert manifest["engines"]["other none"] == real_engine.info
    assert manifest["plan"]["arms"]["other n=2"] == {"ENGINE": "embedded"}
    summary = json.loads((folder(tiny) / report.SUMMARY).read_text())
    assert [row["flags"] for row in summary["builds"]] == [[], []]
    known = [row for row in summary["known_answer"] if row["arm"] == "other n=2"]
    assert [row["equal"] for row in known] == [True]
    text = (folder(tiny) / report.REPORT).read_text()
    assert f"the other ({real_engine.title}) is" in text
    assert "engines of two releases" in text
    assert "make longctx ENGINE=embedded" in text


def test_flags_of_an_engine_that_is_not_compiled(tiny: Rig) -> None:
    both = tiny.variant({"ENGINE": "embedded"})
    with pytest.raises(RigError, match=r"not compiled here.*BUILDS_ENGINE=source"):
        builds.changes(both)
    assert builds.changes(both.variant({"BUILDS_ENGINE": "source"}))["ENGINE"] == "source"


def test_a_container_knows_its_own_engines_only(
    tiny: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llama-server").touch()
    monkeypatch.setattr(build, "CONTAINER", tmp_path / "llama-server")
    mine = tiny.variant({"ENGINE": "embedded", "BUILDS_ENGINE": "source"})
    assert builds.changes(mine)["CMAKE_EXTRA"] == FLAG
    with pytest.raises(RigError, match="the other build is the rig's own"):
        builds.changes(mine.variant({"BUILDS_CMAKE_EXTRA": ""}))
