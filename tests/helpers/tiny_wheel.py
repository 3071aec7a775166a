"""Wheels made on the spot, and the lock lines that name them: set-up without an index."""

import hashlib
import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, files: dict[str, str], version: str = "1.0") -> str:
    """Write a wheel into `folder`; its line of a lock file."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    contents[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*contents, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in contents.items():
            entry = zipfile.ZipInfo(file)
            entry.external_attr = 0o100755 << 16  # a file anyone may run
            archive.writestr(entry, text)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{name}=={version} --hash=sha256:{digest}\n"


def script(name: str, text: str, version: str = "1.0") -> dict[str, str]:
    """The files of a wheel that puts a program into bin."""
    return {f"{name}-{version}.data/scripts/{name}": text}
