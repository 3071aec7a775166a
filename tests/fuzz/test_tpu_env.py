"""Mutated tpu.env files: each loads, or is one RigError. FUZZ=20000 tries more of them."""

import os
import random
from pathlib import Path

from common import rig
from common.engines.llamacpp import serve
from common.errors import RigError
from common.rig import Rig

SEED = 14
TRIES = int(os.environ.get("FUZZ") or 400)
PIECES = [
    *(
        "",
        "=",
        "#",
        "\n",
        "\r\n",
        "\r",
        " ",
        "\t",
        "\0",
        "\f",
        "\u2028",
        "\ufeff",
        "'",
        '"',
        "$(id)",
    ),
    *(
        "-1",
        "0",
        "1e999",
        "nan",
        "9" * 40,
        "9" * 5000,
        ",",
        ",,",
        "0.5,",
        "::1",
        "..",
        "~",
        "\\",
        "%",
    ),
    *("draft-mtp", "none", "n=2", "BACKEND=cuda", "HOST=", "PORT=", "export ", "é", "\ud800"),
    *(f"{key}=" for key in rig.KEYS),
]


def mutated(text: str, dice: random.Random) -> bytes:
    """The text with up to four changes, each anywhere."""
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(text) + 1)
        lines = text.split("\n")
        match dice.randrange(5):
            case 0:
                text = text[:at] + dice.choice(PIECES) + text[at:]
            case 1:
                text = text[:at] + text[at + dice.randint(1, 20) :]
            case 2:
                number = dice.randrange(len(lines))
                key = lines[number].partition("=")[0]
                lines[number] = f"{key}={dice.choice(PIECES)}"
                text = "\n".join(lines)
            case 3:
                lines.insert(dice.randrange(len(lines)), dice.choice(lines))
                text = "\n".join(lines)
            case _:
                lines.insert(0, f"{dice.choice(rig.KEYS)}={dice.choice(PIECES)}")
                text = "\n".join(lines)
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    if data and dice.random() < 0.1:
        data[dice.randrange(len(data))] = dice.randrange(256)
    return bytes(data)


def read(folder: Path) -> Rig | str:
    """The rig, or the error."""
    try:
        return rig.load(folder, {})
    except RigError as error:
        return str(error)


def test_a_mutated_file_loads_or_is_one_line(tmp_path: Path) -> None:
    dice = random.Random(SEED)  # noqa: S311 (no secret)
    files = [(folder.name, (folder / rig.FILE).read_text()) for folder in sorted(rig.all_rigs())]
    loaded = refused = 0
    for name, _text in files:
        (tmp_path / name).mkdir()
    for number in range(TRIES):
        name, text = dice.choice(files)
        data = mutated(text, dice)
        (tmp_path / name / rig.FILE).write_bytes(data)
        mine = read(tmp_path / name)
        if isinstance(mine, str):
            refused += 1
            assert "\n" not in mine, (number, data)
            continue
        loaded += 1
        for measuring in (False, True):
            for word in serve.command(mine, "llama-server", measuring):
                assert isinstance(word, str), (number, data)
                assert word not in ("", "None"), (number, data)
        assert mine.url.startswith("http://")
        assert mine.variant(mine.settings()).settings() == mine.settings(), (number, data)
    # Both happen often, else nothing was tried.
    assert min(loaded, refused) > TRIES / 20
