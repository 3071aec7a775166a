"""Registration: an MCP client's entry for a rig's server, in .mcp.json of the project's folder.

Needs nothing but Python itself, since a host that runs rigs in Docker has no environment of ours.
"""

import fcntl
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common import atomic
from common.errors import RigError
from common.rig import ROOT, Rig

FILE = ".mcp.json"
SERVERS = "mcpServers"
# A client starts servers with little of its environment, so what was set is written down. Not
# HF_TOKEN: no token is ever written.
PATHS = (
    "GEMMA_RIGS_CACHE",
    "XDG_CACHE_HOME",
    "MODELS_DIR",
    "LLAMA_SERVER",
    "LLAMA_SRC",
    "CA_BUNDLE",
)
WORDS = (
    "HF_ENDPOINT",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "COMPOSE_PROJECT_NAME",
    "GPU_FLAGS",
    "IMAGE",
    "BASE_IMAGE",
)


def _files() -> list[str]:
    """Settings that name one file of this host, as scripts/lists says."""
    lines = (ROOT / "scripts" / "lists").read_text(encoding="utf-8").splitlines()
    return [line.partition("|")[0] for line in lines if "|setting|file|" in line]


def entry(rig: Rig, runner: str, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """How a client starts the rig's server; `runner` is host or docker."""
    kept = {key: environ[key] for key in (*rig.overridden, *WORDS) if key in environ}
    for key in (*PATHS, *_files()):
        if environ.get(key):
            kept[key] = str(Path(environ[key]).absolute())
    scripts = ROOT / "scripts"
    if runner == "docker":
        command = ["env", "-C", str(rig.folder), str(scripts / "in_docker.sh"), "mcp_server.py"]
        command.append(rig.name)
    else:
        command = [sys.executable, str(scripts / "mcp_server.py"), str(rig.folder)]
        kept["PYTHONPATH"] = str(ROOT)
    return {"type": "stdio", "command": command[0], "args": command[1:], "env": kept}


def write(rig: Rig, runner: str, folder: Path = ROOT) -> Path:
    """Put the rig's entry into .mcp.json; other servers in it stay. Returns its path.

    A reader sees the old file or the new one. Raises RigError if the file there is not what it
    should be, or cannot be written; it is then left as it was.
    """
    path = (folder / FILE).resolve()
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # two rigs registered at once must both be in
        content = _read(path)
        content.setdefault(SERVERS, {})[rig.name] = entry(rig, runner)
        atomic.write(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise RigError(f"{path} cannot be written: {error.strerror}; it is as it was") from None
    finally:
        os.close(handle)
    return path


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RigError(
            f"{path} is not JSON ({error}); it is left as it is. Mend it, or move it away"
        ) from None
    if not isinstance(content, dict) or not isinstance(content.get(SERVERS, {}), dict):
        raise RigError(
            f"{path} has no object of servers under {SERVERS}; it is left as it is. Mend it, or "
            "move it away"
        )
    return content
