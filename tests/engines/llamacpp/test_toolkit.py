"""CUDA's toolkit, with stand-ins: real pip, a real C++ compiler, and an index that is a folder."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from common import places
from common.engines.llamacpp import build, compiling, source, toolkit
from common.errors import RigError
from common.rig import Rig
from tests.helpers.tiny_wheel import wheel

VERSION = "13.7.1"
NVCC = """#!/bin/sh
case $1 in
--version) echo "Cuda compilation tools, release 13.7, V13.7.20" ;;
--list-gpu-arch) printf 'compute_75\\ncompute_86\\n' ;;
esac
"""
HEADER = "CUresult CUDAAPI cuInit(unsigned int);\n#define cuMemAlloc cuMemAlloc_v2\n"
LISTED = ("13.0.2.0", "13.7.1.0", "13.8.0.0", "12.9.1.0", "13.9.0rc1")
RUNNING = "#!/bin/sh\necho it runs\n"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without nvcc; the package index is a folder with a toolkit of VERSION, locked."""
    root, wheels = tmp_path / "root", tmp_path / "wheels"
    root.mkdir()
    inside = {
        "nvidia/cu13/bin/nvcc": NVCC,
        "nvidia/cu13/include/cuda.h": HEADER,
        "nvidia/cu13/lib/libcudart.so.13": "",
    }
    (root / f"requirements-cuda-{VERSION}.lock").write_text(wheel(wheels, "nvcc", inside))
    for version in LISTED:
        wheel(wheels, "cuda_toolkit", {}, version)
    monkeypatch.setattr(toolkit, "ROOT", root)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("GEMMA_RIGS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return tmp_path


def own_nvcc(host: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    program = host / "bin" / "nvcc"
    program.parent.mkdir()
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def ignore(*_: object) -> None:
    return None


def test_it_is_brought_once_and_completed(host: Path) -> None:
    said: list[str] = []
    found = toolkit.get(VERSION, said.append)
    assert found.home is not None
    assert found.home.is_relative_to(places.cache())
    assert (found.release(), found.architectures()) == ("13.7.20", {75, 86})
    assert (found.home / "lib64" / "libcudart.so").resolve().name == "libcudart.so.13"
    assert found.environment() == {
        "CUDACXX": str(found.home / "bin" / "nvcc"),
        "CUDAToolkit_ROOT": str(found.home),
    }
    assert found.stubs is not None
    stub = ctypes.CDLL(str(found.stubs / "libcuda.so.1"))
    assert (stub.cuInit(0), stub.cuMemAlloc_v2()) == (999, 999)
    assert len(said) == 1
    assert "0.6 GB" in said[0]
    shutil.rmtree(host / "wheels")
    assert toolkit.get(VERSION, said.append) == found
    assert len(said) == 1


def test_the_hosts_own_of_the_same_version_is_used(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = own_nvcc(host, monkeypatch, NVCC)
    found = toolkit.get(VERSION, pytest.fail)
    assert (found.nvcc, found.home, found.stubs) == (program, None, None)
    assert found.environment() == {"CUDACXX": str(program)}
    assert not (host / "cache").exists()


@pytest.mark.parametrize(
    "text", [NVCC.replace("13.7, V13.7.20", "13.0, V13.0.88"), "#!/bin/sh\nexit 1\n", RUNNING, ""]
)
def test_another_one_or_one_that_does_not_run_is_left_alone(
    text: str, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_nvcc(host, monkeypatch, text)
    assert toolkit.get(VERSION, ignore).home is not None


def test_an_unknown_version_names_those_there_are(host: Path) -> None:
    with pytest.raises(RigError) as caught:
        toolkit.get("13.9.9", ignore)
    said = str(caught.value)
    assert said.startswith("CUDA_VERSION=13.9.9 has no lock file here; set CUDA_VERSION=13.7.1")
    assert said.endswith("The package index has 13.0.2, 13.7.1, 13.8.0")
    assert "make lock" not in said
    with pytest.raises(RigError, match=r"write one for 13.8.0: make lock CUDA_VERSION=13.8.0"):
        toolkit.check("13.8.0")
    shutil.rmtree(host / "wheels")
    with pytest.raises(RigError, match=r"What the package index has cannot be seen"):
        toolkit.check("13.9.9")


def test_cuda_12_is_refused_with_what_the_index_lacks(host: Path) -> None:
    with pytest.raises(RigError, match=r"lacks nvcc, cudafe\+\+.*RUNNER=docker") as caught:
        toolkit.get("12.8.1", ignore)
    assert "\n" not in str(caught.value)
    assert not (host / "cache").exists()


def test_a_broken_download_is_one_line_and_leaves_nothing(host: Path) -> None:
    for path in (host / "wheels").glob("nvcc-*"):
        path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(RigError, match=r"cannot be had from the package index.*HASH") as caught:
        toolkit.get(VERSION, ignore)
    assert "\n" not in str(caught.value)
    assert "run the same command again" in caught.value.fix
    assert list((host / "cache").rglob("*.part")) == []
    assert toolkit.find(VERSION) is None


@pytest.mark.parametrize(
    ("version", "wanted", "said"),
    [
        ("13.4.1", ("61-virtual", "80-virtual"), r"61-virtual .*CUDA_VERSION=12\.9\.1"),
        ("13.4.1", ("70",), r"for 70 .*CUDA_VERSION=12\.9\.1"),
        ("12.8.1", ("37-real",), r"37-real .*CUDA_VERSION=11\.8\.0"),
    ],
)
def test_an_architecture_that_is_no_longer_compiled_names_the_last_that_did(
    version: str, wanted: tuple[str, ...], said: str
) -> None:
    with pytest.raises(RigError, match=said):
        toolkit.check_architectures(version, wanted, None)


@pytest.mark.usefixtures("host")
def test_architectures_are_asked_of_the_compiler() -> None:
    found = toolkit.get(VERSION, ignore)
    for good in (("75-real",), ("75", "86-virtual"), ("native",), ()):
        toolkit.check_architectures(VERSION, good, found)
    with pytest.raises(RigError, match=r"does not compile for 120-real.*it does for 75, 86"):
        toolkit.check_architectures(VERSION, ("120-real",), found)


def test_a_disk_too_small_is_said_before_anything_is_fetched(
    host: Path, tiny: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = {"BACKEND": "cuda", "ENGINE": "source", "CUDA_VERSION": VERSION, "GPU_NAME": "x"}
    rig = tiny.variant({**change, "CUDA_ARCHITECTURES": "75-real"})
    usage = shutil.disk_usage(host)
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: usage._replace(free=4 * 2**30))
    fetched = source.Source("release", "1", "x", None)
    fetched.folder.mkdir(parents=True)
    with pytest.raises(RigError, match=r"4\.0 GiB free .* 4\.8 needed.*make room"):
        build.build_from(rig, fetched, ignore, ignore, Path, "")
    assert not (host / "cache" / "tools").exists()
    toolkit.get(VERSION, ignore)
    compiling.check_room(rig)  # now the toolkit is there


def test_what_a_library_opens_itself_comes_along(host: Path, tmp_path: Path) -> None:
    """Linked ones by the loader, others by the names in their bytes."""
    lib = tmp_path / "toolkit"
    lib.mkdir()
    source = lib / "one.c"
    source.write_text('const char *opened = "libnvrtc.so.13"; int cublas(void) { return 0; }')
    library = lib / "libcublas.so.13"
    link = ["cc", "-shared", "-fPIC", str(source), "-Wl,-soname,libcublas.so.13"]
    subprocess.run([*link, "-o", str(library)], check=True)
    (lib / "libnvrtc.so.13").write_bytes(b"\0libnvrtc-builtins.so.13.7\0libabsent.so.1\0")
    (lib / "libnvrtc-builtins.so.13.7").write_bytes(b"\0")
    (lib / "libnvblas.so.13").write_bytes(b"\0")
    (lib / "main.c").write_text("int cublas(void); int main(void) { return cublas(); }")
    program = lib / "program"
    line = ["cc", str(lib / "main.c"), str(library), f"-Wl,-rpath,{lib}", "-o", str(program)]
    subprocess.run(line, check=True)
    found = toolkit.libraries(program, toolkit.Toolkit(host / "nvcc", None))
    names = ["libcublas.so.13", "libnvrtc-builtins.so.13.7", "libnvrtc.so.13"]
    assert [path.name for path in found] == names
    library.unlink()
    with pytest.raises(RigError, match=r"linked with libcublas\.so\.13, which is not here"):
        toolkit.libraries(program, toolkit.Toolkit(host / "nvcc", None))
