"""The reader of tpu.env in shell says what the one in Python says. (compose: tests/docker)"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from common import rig
from common.errors import RigError
from common.rig import ROOT

RIGS = sorted(folder.name for folder in rig.all_rigs())
TINY = "local-llamacpp-cpu-tiny-q4_0"
EVERY = f"""
root={ROOT!s}; rig=$1; file=$1/tpu.env
fail() {{ echo "error: $*" >&2; exit 1; }}
. "$root/scripts/tpu_env.sh"
check_settings
for key in {" ".join(rig.KEYS)}; do value=$(in_force "$key") || exit 1; echo "$key=$value"; done
"""


def by_shell(folder: Path, environ: dict[str, str]) -> dict[str, str] | str:
    """Every setting, or the error."""
    done = subprocess.run(
        ["sh", "-euc", EVERY, "sh", str(folder)],
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def by_python(folder: Path, environ: dict[str, str]) -> dict[str, str]:
    return rig.load(folder, environ).settings()


@pytest.mark.parametrize("name", RIGS)
def test_every_setting_of_every_rig(name: str) -> None:
    assert by_shell(ROOT / name, {}) == by_python(ROOT / name, {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / TINY, tmp_path / TINY, ignore=shutil.ignore_patterns("benchmarks"))
    return tmp_path / TINY


@pytest.mark.parametrize(
    "environ",
    [
        {"PORT": "9000", "HOST": "::1"},
        {"HOST": "x86_64-conda-linux-gnu"},
        {"HOST": "", "PORT": "", "BACKEND": "", "CTX_SIZE": "", "MODEL": ""},
        {"LLAMA_CPP_RELEASE": "", "CACHE_TYPE_K": "", "SPEC_TYPE": "", "SWEEP_PROMPTS": ""},
        {"HOST": "localhost", "CUDA_ARCHITECTURES": "75-real,86-real"},
    ],
)
def test_the_environment_beats_the_file_alike(folder: Path, environ: dict[str, str]) -> None:
    assert by_shell(folder, environ) == by_python(folder, environ)


ADDED = [
    "# BACKEND=cuda",
    "# for a card: set BACKEND=cuda",
    "# a comment\u2028SPEC_DRAFT_P_MIN=0.5",
    "# a comment\fHOST=0.0.0.0",
    "# a comment\rHOST=0.0.0.0",
    "#\0",
    " \t",
    "GPU_NAME=",
    "CUDA_VERSION=13.4.1",
]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("line", ADDED)
def test_odd_lines_are_read_alike(folder: Path, line: str, end: str) -> None:
    file = folder / rig.FILE
    file.write_bytes((file.read_text() + line + "\n").replace("\n", end).encode())
    assert by_shell(folder, {}) == by_python(folder, {})


@pytest.mark.parametrize(
    "line",
    [
        "GPU_NAME='a'",
        "GPU_NAME=a b",
        "GPU_NAME=$(id)",
        "GPU_NAME=`id`",
        "GPU_NAME=a\u2028",
        "GPU_NAME=a\rb",
        "export GPU_NAME=a",
        "gpu_name=a",
        " GPU_NAME=a",
        "GPU_NAME = a",
        "\f",
        "\ufeff# a comment",
        "PORT=8081",
        "HOST=127.0.0.1 --privileged -v /:/host",
    ],
)
def test_what_one_refuses_the_other_refuses_too(folder: Path, line: str) -> None:
    file = folder / rig.FILE
    file.write_bytes((file.read_text() + line + "\n").encode())
    said = by_shell(folder, {})
    assert isinstance(said, str)
    assert said.startswith("error: ")
    assert len(said.splitlines()) == 1
    with pytest.raises(RigError):
        by_python(folder, {})


@pytest.mark.parametrize("host", ["my-laptop", "1.2.3.4.5:80", "x"])
def test_a_name_in_the_file_is_refused(folder: Path, host: str) -> None:
    file = folder / rig.FILE
    file.write_text(file.read_text().replace("HOST=127.0.0.1", f"HOST={host}"))
    assert f"HOST={host}: expected localhost or an address" in str(by_shell(folder, {}))
    with pytest.raises(RigError, match=f"HOST={host}: expected localhost or an address"):
        by_python(folder, {})
