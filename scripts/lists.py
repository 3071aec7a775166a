"""Write scripts/lists: what make and the shell scripts must know of verbs and settings.

Hosts that run rigs in Docker have no Python of ours, so it is made beforehand: make lists.
"""

from pathlib import Path

from common import kinds
from common.kinds.accuracy.tests import TESTS
from common.rig import DEFAULTS, KEYS, WANTED
from scripts import _cli

FILE = Path(__file__).with_name("lists")
HEAD = "# Made by make lists from common/kinds, common/rig.py and scripts/lists.py.\n"
# What each script needs, in a container and outside, joined by commas:
#   card, engine  to be there
#   fetches       may fetch files, so it is told HF_TOKEN
#   writes        writes into tpu.env; applies: with APPLY=1 only
#   run           its argument is a run directory
#   both          two engines: the rig's own and the other build
#   KEY           the file or folder of the host that this setting names
MEASURED = "card,engine,fetches"
# What names the questions of each accuracy test.
QUESTIONS = tuple(test.setting for test in TESTS)
# Settings whose value names files of the host that a container must have too. FORMATS_EXTRA names
# several, and files in the models folder.
FILES = {**dict.fromkeys(QUESTIONS, "file"), "FORMATS_EXTRA": "files", "LONGCTX_DOC": "file"}
SCRIPTS = {
    "doctor": "card",
    "engine": "",
    "fetch": "fetches",
    "files": "",
    "map": "",
    "mcp_server": ",".join(("card", "fetches", *FILES)),
    "pin": "fetches,writes",
    "repack": "engine,fetches",
    "report": "run",
    "rescore": "run",
    "serve": MEASURED,
    "show": "",
    "status": "",
    "stop": "",
    "tune": f"{MEASURED},applies,LONGCTX_DOC,RUN",
}
# What a measurement needs beside MEASURED.
MORE = {
    "accuracy": "".join(f",{key}" for key in QUESTIONS),
    "builds": ",both",
    "formats": ",FORMATS_EXTRA",
    "longctx": ",LONGCTX_DOC",
    "longmixed": ",LONGCTX_DOC",
}
NOT_KEYS = (*QUESTIONS, "QUICK", "RESUME", "SET_ASIDE", "APPLY", "RUN", "HF_ENDPOINT")


def measured() -> dict[str, str]:
    """Measurements by name with their help, but for those with a script of their own."""
    return {
        kind.name: kind.help for kind in kinds.KINDS if kind.of_rig and kind.name not in SCRIPTS
    }


def needs() -> dict[str, str]:
    """What every verb needs, by name."""
    return {**SCRIPTS, **{name: MEASURED + MORE.get(name, "") for name in measured()}}


def text() -> str:
    """The whole file: verb|script or measure|needs|help, and
    KEY|setting|file, files, wanted or nothing|default|."""
    told = measured()
    lines = [
        f"{verb}|{'measure' if verb in told else 'script'}|{needed}|{told.get(verb, '')}"
        for verb, needed in needs().items()
    ]
    lines += [
        f"{key}|setting|{FILES.get(key) or ('wanted' if key in WANTED else '')}|"
        f"{DEFAULTS.get(key, '')}|"
        for key in (*KEYS, *NOT_KEYS)
    ]
    return HEAD + "".join(line + "\n" for line in lines)


def body() -> None:
    FILE.write_text(text())
    _cli.say(f"wrote {FILE}")


if __name__ == "__main__":
    _cli.main(body)
