"""Write scripts/lists: what make and the shell scripts must know of verbs and settings.

Hosts that run rigs in Docker have no Python of ours, so it is made beforehand: make lists.
"""

from pathlib import Path

from common import kinds
from common.rig import KEYS
from scripts import cli

FILE = Path(__file__).with_name("lists")
HEAD = "# Made by make lists from common/kinds, common/rig.py and scripts/lists.py.\n"
# What each script needs, in a container and outside: card, engine; whether it may fetch (then it
# is told HF_TOKEN) and writes into tpu.env. A measurement needs all but the last.
SCRIPTS = {
    "doctor": "card",
    "draft": "fetches",
    "engine": "",
    "files": "",
    "map": "",
    "mcp_server": "card,fetches",
    "model": "fetches",
    "pin": "fetches,writes",
    "repack": "engine,fetches",
    "report": "",
    "rescore": "",
    "serve": "card,engine,fetches",
    "show": "",
    "status": "",
    "stop": "",
    "tune": "card,engine,fetches,writes",
}
MEASURED = "card,engine,fetches"
# Settings whose value names a file of the host that a container must have too.
FILES = ("BFCL_PATH", "FORMATS_EXTRA", "GSM8K_PATH", "LONGCTX_DOC")
NOT_KEYS = ("GSM8K_PATH", "BFCL_PATH", "QUICK", "RESUME", "APPLY", "RUN", "HF_ENDPOINT")


def measured() -> dict[str, str]:
    """Measurements by name with their help, but for those with a script of their own."""
    return {
        kind.name: kind.help for kind in kinds.KINDS if kind.of_rig and kind.name not in SCRIPTS
    }


def text() -> str:
    """The whole file: verb|script or measure|needs|help, and KEY|setting|file or nothing|."""
    lines = [f"{verb}|script|{needs}|" for verb, needs in SCRIPTS.items()]
    lines += [f"{name}|measure|{MEASURED}|{told}" for name, told in measured().items()]
    for key in (*KEYS, *NOT_KEYS):
        lines.append(f"{key}|setting|{'file' if key in FILES else ''}|")
    return HEAD + "".join(line + "\n" for line in lines)


def body() -> None:
    FILE.write_text(text())
    cli.say(f"wrote {FILE}")


if __name__ == "__main__":
    cli.main(body)
