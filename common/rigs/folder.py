"""Rig folder: puts a new rig beside the others, whole or not at all."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from common import rig
from common.errors import RigError
from common.rig import ROOT
from common.rigs import services
from common.rigs.services import COMPOSE

README = "README.md"
END_OF_TABLE = "\n<!-- end of the rigs -->\n"
TEMPORARY = ".new-rig-"


class NewRig(Protocol):
    """A rig that does not exist yet: blueprint.py, known_answer.py."""

    @property
    def name(self) -> str: ...

    @property
    def memory(self) -> str:
        """What its server may take of the host's memory, as compose.yaml says it."""

    @property
    def row(self) -> str:
        """Its line in README.md's table of rigs."""

    def files(self) -> dict[str, str]:
        """Name and text of every file in the rig's folder."""


def make(blueprint: NewRig, root: Path = ROOT) -> Path:
    """Make the rig's folder in `root`, its services in compose.yaml and its line in README.md;
    returns the folder.

    Everything is written in a temporary folder and checked there. Then the folder gets its name and
    both files are replaced; if that fails or is interrupted, all is as before.
    Raises RigError if the rig is there already or the disk refuses.
    """
    folder = root / blueprint.name
    _check_new(blueprint.name, folder, root / COMPOSE)
    try:
        with TemporaryDirectory(dir=root, prefix=TEMPORARY) as temporary:
            draft = Path(temporary) / blueprint.name
            draft.mkdir()
            for name, text in blueprint.files().items():
                (draft / name).write_text(text, encoding="utf-8")
            service = services.of(rig.load(draft, {}), blueprint.memory, root)
            changed = {
                README: _in_table(root / README, blueprint.row),
                COMPOSE: services.added(root / COMPOSE, service, blueprint.name),
            }
            for name, text in changed.items():
                shutil.copy2(root / name, Path(temporary) / f"{name}.before")
                (Path(temporary) / name).write_text(text, encoding="utf-8")
                shutil.copymode(root / name, Path(temporary) / name)
            try:
                draft.rename(folder)
                for name in changed:
                    (Path(temporary) / name).replace(root / name)
            except BaseException:
                if not draft.exists():
                    shutil.rmtree(folder)
                for name in changed:
                    if not (Path(temporary) / name).exists():
                        (Path(temporary) / f"{name}.before").replace(root / name)
                raise
    except OSError as error:
        raise RigError(
            f"{error.filename or root}: {error.strerror or error}; nothing was made"
        ) from None
    return folder


def _check_new(name: str, folder: Path, compose: Path) -> None:
    if folder.exists() or folder.is_symlink():
        half = folder.is_dir() and not services.there(compose, name)
        hint = f"; {COMPOSE} has no service for it: if it is half a rig, remove it" if half else ""
        raise RigError(f"{folder} exists already and is left as it is{hint}")
    if services.there(compose, name):
        raise RigError(
            f"{compose} has a service {name} already, but there is no such folder; remove the "
            "service or bring the folder back"
        )


def _in_table(readme: Path, row: str) -> str:
    """README.md with one more line at the end of its table of rigs."""
    text = services.read(readme)
    if text.count(END_OF_TABLE) != 1:
        raise RigError(
            f"{readme}: expected the line {END_OF_TABLE.strip()} once, after the table of rigs; "
            "nothing was made"
        )
    return text.replace(END_OF_TABLE, f"{row}{END_OF_TABLE}")
