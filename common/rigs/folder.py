"""Rig folder: puts a new rig beside the others, whole or not at all."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from common import rig
from common.errors import RigError
from common.rig import FILE, ROOT
from common.rigs.blueprint import Blueprint

COMPOSE = "compose.yaml"
TEMPORARY = ".new-rig-"


def make(blueprint: Blueprint, root: Path = ROOT) -> Path:
    """Make the rig's folder in `root` and its services in compose.yaml; returns the folder.

    Everything is written in a temporary folder and checked there. Then the folder gets its name,
    then compose.yaml is replaced; if that fails or is interrupted, the folder goes again.
    Raises RigError if the rig is there already or the disk refuses.
    """
    folder = root / blueprint.name
    compose = root / COMPOSE
    _check_new(blueprint.name, folder, compose)
    try:
        with TemporaryDirectory(dir=root, prefix=TEMPORARY) as temporary:
            draft = Path(temporary) / blueprint.name
            draft.mkdir()
            for name, text in blueprint.files().items():
                (draft / name).write_text(text, encoding="utf-8")
            rig.load(draft, {})
            service = blueprint.service(_image(root, draft))
            new_compose = Path(temporary) / COMPOSE
            new_compose.write_text(_inserted(compose, service, blueprint.name), encoding="utf-8")
            shutil.copymode(compose, new_compose)
            try:
                draft.rename(folder)
                new_compose.replace(compose)
            except BaseException:
                if new_compose.exists() and not draft.exists():
                    shutil.rmtree(folder)  # ours, and no service names it
                raise
    except OSError as error:
        raise RigError(
            f"{error.filename or root}: {error.strerror or error}; nothing was made"
        ) from None
    return folder


def _check_new(name: str, folder: Path, compose: Path) -> None:
    if folder.exists() or folder.is_symlink():
        half = folder.is_dir() and not _has_service(compose, name)
        hint = f"; {COMPOSE} has no service for it: if it is half a rig, remove it" if half else ""
        raise RigError(f"{folder} exists already and is left as it is{hint}")
    if _has_service(compose, name):
        raise RigError(
            f"{compose} has a service {name} already, but there is no such folder; remove the "
            "service or bring the folder back"
        )


def _has_service(compose: Path, name: str) -> bool:
    return re.search(rf"^  {re.escape(name)}:", _text(compose), re.MULTILINE) is not None


def _text(compose: Path) -> str:
    try:
        return compose.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RigError(f"{compose}: cannot be read: {error}; nothing was made") from None


def _image(root: Path, draft: Path) -> str:
    """What scripts/image.sh will call this rig's image."""
    script = [str(root / "scripts" / "image.sh"), str(draft.relative_to(root)), "name"]
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    done = subprocess.run(script, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RigError(f"scripts/image.sh: {done.stderr.strip() or 'failed'}; nothing was made")
    return done.stdout.strip()


def _inserted(compose: Path, service: str, name: str) -> str:
    """compose.yaml with one more service after the last; every other line as it was."""
    before = _text(compose)
    at = before.find("\nvolumes:\n")
    if not before.count("\nservices:\n") == before.count("\nvolumes:\n") == 1:
        raise RigError(f"{compose}: expected `volumes:` after the services; nothing was made")
    after = f"{before[:at].rstrip()}\n\n{service}{before[at:]}"
    try:
        old, new = yaml.safe_load(before), yaml.safe_load(after)
        added = {key: new["services"].pop(key) for key in (name, f"{name}-files")}
        same = {**old, "services": old["services"] or {}} == new
        if same and added[name]["env_file"] == [f"{name}/{FILE}"]:
            return after
    except (yaml.YAMLError, KeyError, TypeError, AttributeError):
        pass
    raise RigError(f"{compose}: its layout is not the usual one; nothing was made")
