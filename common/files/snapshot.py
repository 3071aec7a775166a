"""Snapshot: a published checkpoint's files at one commit, brought to the cache and checked.

huggingface_hub says which files there are; it could bring them too, but a file whose download is
killed it begins again from nothing (see hub).
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from common import places
from common.digest import sha256
from common.errors import RigError, shown
from common.files import hub
from common.files.hub import HubFile, Progress, Remote, Say
from common.lock import only_one
from common.rig import Rig

PATTERNS = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model")
# It becomes a path in the cache: no way out of its folder, no hidden file.
SAFE_NAME = re.compile(r"(?:(?!\.)[\w.+-]{1,120}/){0,4}(?!\.)[\w.+-]{1,120}")
SPARE = 2**30
LOCK = ".lock"


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint on this disk, and where it is from."""

    folder: Path
    repository: str
    revision: str
    """the full commit"""


def fetch(rig: Rig, say: Say, progress: Progress) -> Snapshot:
    """Bring the checkpoint REPACK_HF to the cache; a broken download goes on where it stopped.

    Raises RigError if it is not named, cannot be had, is not what the hub declares, or the disk has
    no room for it and for what is made of it.
    """
    if rig.repack_hf is None:
        raise RigError(f"{rig.name}: set REPACK_HF, the checkpoint to repack")
    revision, files = _listed(rig.repack_hf, rig.repack_hf_revision)
    folder = places.cache() / "snapshots" / rig.repack_hf.replace("/", "--") / revision
    need = sum(file.size for file in files)
    _check_room(folder, 3 * need)  # itself, Q8_0, Q4_0 and bf16
    say(f"fetching {rig.repack_hf} at {revision}, {need / 1e6:.0f} MB")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with only_one(folder / LOCK, lambda: say("waiting: another command is fetching it")):
            for file in files:
                _bring(file, folder / file.file.name, say, progress)
    except OSError as error:
        raise RigError(f"{error.filename or folder}: {error.strerror or error}") from None
    return Snapshot(folder, rig.repack_hf, revision)


def _listed(repository: str, revision: str | None) -> tuple[str, list[Remote]]:
    """The full commit, and the files that a checkpoint is made of."""
    # Otherwise the client asks the hub for a list of its own besides, once per process.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    # Imported here: they are slow to load and most commands do not need them.
    from httpx2 import HTTPError
    from huggingface_hub import HfApi, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError

    endpoint, token = hub.endpoint(), hub.token()
    try:
        api = HfApi(endpoint=endpoint, token=token or False)
        info = api.model_info(repository, revision=revision, files_metadata=True)
    except (HfHubHTTPError, HTTPError, OSError, ValueError) as error:
        raise RigError(
            f"{repository} could not be fetched: {_reason(error)}. Check the network, HF_ENDPOINT, "
            "REPACK_HF and REPACK_HF_REVISION, and HF_TOKEN if its terms must be accepted first"
        ) from None
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise RigError(
            f"{repository}: the hub's answer makes no sense", fix="check HF_ENDPOINT"
        ) from None
    commit = hub.full_commit(info.sha)
    if commit is None:
        raise RigError(f"{repository}: the hub names no commit", fix="check HF_ENDPOINT")
    files = []
    for found in info.siblings or ():
        name = found.rfilename
        if not any(Path(name).match(pattern) for pattern in PATTERNS):
            continue
        if not SAFE_NAME.fullmatch(name):
            raise RigError(
                f"{repository} lists {shown(name)}, which is no file of a checkpoint",
                fix="check HF_ENDPOINT",
            )
        if type(found.size) is not int or found.size < 0:
            raise RigError(f"{repository}: the hub does not say how long {name} is")
        file = HubFile(repository, name, commit, "REPACK", "REPACK_HF", "GEMMA_RIGS_CACHE")
        url = hf_hub_url(repository, name, revision=commit, endpoint=endpoint)
        declared = found.lfs.sha256 if found.lfs else None
        files.append(Remote(file, url, found.size, commit, declared))
    return commit, files


def _bring(remote: Remote, path: Path, say: Say, progress: Progress) -> None:
    """One file, which gets its name only when it is whole and checked."""
    if path.is_file():
        return
    part = path.with_name(path.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    hub.download(remote, part, say, progress)
    if remote.sha256 and (found := sha256(part)) != remote.sha256:
        part.unlink()
        raise RigError(
            f"{path.name} came with SHA-256 {found}, the hub declares {remote.sha256}; it was not "
            "used. Run this again; if it stays so, check HF_ENDPOINT"
        )
    part.replace(path)


def _reason(error: Exception) -> str:
    """What went wrong, without the server's own words: they may hold a token or signed address."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is not None:
        return f"the server answered {status}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def _check_room(folder: Path, need: int) -> None:
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    free = shutil.disk_usage(there).free
    if free < need + SPARE:
        raise RigError(
            f"{need / 1e9:.1f} GB and 1 GB to spare are needed in {there}, {free / 1e9:.1f} GB are "
            "free; make room, or set GEMMA_RIGS_CACHE to another folder"
        )
