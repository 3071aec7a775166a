"""An NVIDIA driver that is not there: libcuda.so.1 and libnvidia-ml.so.1 that answer as they are
told, compiled here in a blink.

    folder = stub_driver.build(tmp_path / "driver", stub_driver.NO_DEVICE)
    subprocess.run([...], env={**os.environ, **stub_driver.environment(folder)})

A program finds them through LD_LIBRARY_PATH, which is read when it starts. In a container: mount
the folder, and put it before what LD_LIBRARY_PATH holds there. They need nothing but an ordinary C
library. Nothing can be computed on such a card: CUDA's runtime gives error 500 as soon as cuInit
and the version were right.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
# What llama.cpp's CUDA backend is linked with; all else CUDA's runtime asks for by name.
NEEDED = (
    "cuDeviceGetAttribute",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemGetAllocationGranularity",
    "cuMemMap",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
)


@dataclass(frozen=True)
class Behaviour:
    """What such a driver says. As it stands: a card, and a driver of CUDA 13.0."""

    version: str = "580.95.05"
    cuda: str = "13.0"
    cards: int = 1
    card: str = "NVIDIA GeForce GTX 1650 Ti with Max-Q Design"
    capability: tuple[int, int] = (7, 5)
    memory_mib: int = 4096
    cu_init: int = 0
    """what cuInit gives; 100 is "no device", 999 "unknown", 803 "library and driver differ\""""
    nvml_init: int = 0
    """what nvmlInit gives; 9 is "driver not loaded\""""
    libcuda: bool = True
    nvml: bool = True
    """whether there is such a library at all"""


OLDER_MINOR = Behaviour()
"""older than CUDA 13.4, of the same major version"""
OLDER_CUDA = Behaviour(version="550.54.15", cuda="12.4")
NO_DEVICE = Behaviour(cards=0, cu_init=100)
"""the libraries without a card, as with NVIDIA_VISIBLE_DEVICES=none"""
NO_NVML = Behaviour(nvml=False)
NO_LIBCUDA = Behaviour(libcuda=False)
"""as with NVIDIA_DRIVER_CAPABILITIES=utility"""


def build(folder: Path, behaviour: Behaviour) -> Path:
    """Compile the libraries of a driver of this behaviour into `folder`; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    major, minor = behaviour.cuda.split(".")
    cuda = 1000 * int(major) + 10 * int(minor)
    if behaviour.libcuda:
        needed = " ".join(f"X({name})" for name in NEEDED)
        settings = {
            "CU_INIT": behaviour.cu_init,
            "CU_VERSION": cuda,
            "CU_DEVICES": behaviour.cards,
            "NEEDED(X)": needed,
        }
        _compile("stub_cuda.c", folder / "libcuda.so.1", settings)
    if behaviour.nvml:
        settings = {
            "NVML_INIT": behaviour.nvml_init,
            "DRIVER": f'"{behaviour.version}"',
            "CUDA": cuda,
            "CARDS": behaviour.cards,
            "CARD": f'"{behaviour.card}"',
            "MAJOR": behaviour.capability[0],
            "MINOR": behaviour.capability[1],
            "MEMORY_MIB": behaviour.memory_mib,
        }
        _compile("stub_nvml.c", folder / "libnvidia-ml.so.1", settings)
    return folder


def environment(folder: Path, *others: Path) -> dict[str, str]:
    """What a program must be told to find the libraries in `folder`, and in others after it."""
    paths = [str(folder), *map(str, others), os.environ.get("LD_LIBRARY_PATH", "")]
    return {"LD_LIBRARY_PATH": ":".join(path for path in paths if path)}


def _compile(source: str, target: Path, settings: dict[str, object]) -> None:
    defines = [f"-D{name}={value}" for name, value in settings.items()]
    line = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-w"]
    line += [f"-Wl,-soname,{target.name}", *defines, "-o", str(target), str(HERE / source)]
    subprocess.run(line, check=True)
