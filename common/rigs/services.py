"""Services: what compose.yaml holds of a rig: two services, made from its tpu.env.

Its other lines, and how much memory each server may take, are a person's.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from string import Template

import yaml

from common import rig
from common.errors import RigError
from common.rig import FILE, ROOT, Rig

COMPOSE = "compose.yaml"
TEMPLATE = Path(__file__).with_name("templates") / "service.yaml.txt"
ARGUMENTS = (
    "BACKEND",
    *(key for key, group in rig.GROUPS.items() if group == "build" and key != "ENGINE"),
)
"""what an image is built from, where tpu.env has it"""


def of(mine: Rig, memory: str, root: Path = ROOT) -> str:
    """The rig's two services; `memory` is the server's limit, such as 8g. Its folder is somewhere
    in `root`."""
    given = rig.read_lines(mine.folder / FILE)
    arguments = [
        f"        {key}: {json.dumps(given[key][0])}\n" for key in ARGUMENTS if key in given
    ]
    if mine.backend == "cuda" and str(mine.cuda_version).startswith("12."):  # as in image.sh
        arguments.append(f'        CUDA_DEVEL: "cuda-{mine.cuda_version}"\n')
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        name=mine.name,
        image=_image(root, mine.folder),
        arguments="".join(arguments),
        port=mine.port,
        memory=memory,
        deploy="    deploy: *card\n" if mine.backend == "cuda" else "",
    )


def anew(root: Path = ROOT) -> str:
    """compose.yaml with the services of every rig in `root` made anew, their memory limits kept.

    Raises RigError if a rig has none yet.
    """
    text = read(root / COMPOSE)
    for folder in sorted(path.parent for path in root.glob(f"local-*/{FILE}")):
        name = re.escape(folder.name)
        block = re.compile(rf"^  {name}:\n(?: {{4}}.*\n)+  {name}-files:\n(?: {{4}}.*\n)+", re.M)
        found = block.search(text)
        memory = re.search(r"mem_limit: \$\{MEM_LIMIT:-(\w+)\}", found[0]) if found else None
        if not found or not memory:
            raise RigError(
                f"{root / COMPOSE} has no services {folder.name} and {folder.name}-files of the "
                "usual form; copy another rig's there, under these names"
            )
        new = of(rig.load(folder, {}), memory[1], root)
        text = text[: found.start()] + new + text[found.end() :]
    return text


def there(compose: Path, name: str) -> bool:
    """Whether compose.yaml has a service of this name."""
    return re.search(rf"^  {re.escape(name)}:", read(compose), re.MULTILINE) is not None


def added(compose: Path, service: str, name: str) -> str:
    """compose.yaml with one more rig's services after the last; every other line as it was."""
    before = read(compose)
    at = before.find("\nvolumes:\n")
    if not before.count("\nservices:\n") == before.count("\nvolumes:\n") == 1:
        raise RigError(f"{compose}: expected `volumes:` after the services; nothing was made")
    after = f"{before[:at].rstrip()}\n\n{service}{before[at:]}"
    try:
        old, new = yaml.safe_load(before), yaml.safe_load(after)
        more = {key: new["services"].pop(key) for key in (name, f"{name}-files")}
        same = {**old, "services": old["services"] or {}} == new
        if same and more[name]["env_file"] == [f"{name}/{FILE}"]:
            return after
    except (yaml.YAMLError, KeyError, TypeError, AttributeError):
        pass
    raise RigError(f"{compose}: its layout is not the usual one; nothing was made")


def read(path: Path) -> str:
    """The text of a file of the project that is about to be changed. Raises RigError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RigError(f"{path}: cannot be read: {error}; nothing was made") from None


def _image(root: Path, folder: Path) -> str:
    """What scripts/image.sh calls this rig's image."""
    script = [str(root / "scripts" / "image.sh"), str(folder.relative_to(root)), "name"]
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    done = subprocess.run(script, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RigError(f"scripts/image.sh: {done.stderr.strip() or 'failed'}; nothing was made")
    return done.stdout.strip()
