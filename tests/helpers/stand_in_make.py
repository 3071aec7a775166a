"""A stand-in for make: it does to a rig what a test wrote down, and notes how it was called.

`behaviour.json` beside it: target and rig, such as "speed local-llamacpp-l4-2b-q4_0" (or a target
alone) -> what happens. Without an entry a measurement leaves a finished run directory.
says: lines; code: the exit code; minutes: by how much the clock goes on; hangs: whether it goes on
until Ctrl-C; sends: a signal to who called it; equal: whether the known answer is.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KINDS = ("speed", "cost", "sweep")


def main() -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    words = sys.argv[1:]
    name = words[words.index("-C") + 1]
    given = {word for word in words if "=" in word}
    target = next(word for word in words[words.index(name) + 1 :] if "=" not in word)
    with (HERE / "calls").open("a") as calls:
        calls.write(" ".join([name, *words[words.index(name) + 1 :]]) + "\n")
    behaviour = json.loads((HERE / "behaviour.json").read_text())
    mine: dict[str, Any] = behaviour.get(f"{target} {name}", behaviour.get(target, {}))
    for line in mine.get("says", []):
        print(line, flush=True)
    code = int(mine.get("code", 0))
    if "RESUME=1" in given and mine.get("refuses_to_go_on"):
        print(mine["refuses_to_go_on"], flush=True)
        code = 2
    elif target in KINDS and (not code or mine.get("begins")):
        folder = _folder(Path(name), target, "RESUME=1" in given)
        _write(folder, name, target, "QUICK=1" in given, ended=False)
    clock = HERE / "clock"
    clock.write_text(str(float(clock.read_text()) + mine.get("minutes", 0) * 60))
    try:
        if "sends" in mine:
            os.kill(os.getppid(), mine["sends"])
        while mine.get("hangs") or "sends" in mine:
            time.sleep(0.01)
    except KeyboardInterrupt:
        print("stopped", flush=True)
        return 130
    if target in KINDS and not code and not mine.get("leaves_nothing"):
        _write(folder, name, target, "QUICK=1" in given, ended=True)
        (folder / "logs").mkdir(exist_ok=True)
        (folder / "logs" / "none.log").write_text("a server's log\n")
        (folder / "run.lock").touch()
        rows = [{"arm": "n=1", "equal": mine.get("equal", True)}]
        (folder / "summary.json").write_text(json.dumps({"known_answer": rows}))
    return code


def _folder(rig: Path, kind: str, again: bool) -> Path:
    runs = rig / "benchmarks" / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    mine = sorted(runs.glob(f"*-{kind}-*"))
    if again:
        return mine[-1]
    number = f"-{len(mine) + 1}" if mine else ""
    folder = runs / f"2026-12-01-{kind}-{rig.name.split('-')[2]}{number}"
    folder.mkdir()
    return folder


def _write(folder: Path, rig: str, kind: str, quick: bool, ended: bool) -> None:
    manifest = json.loads((HERE / "manifest.json").read_text())
    number = len((HERE / "calls").read_text().splitlines())
    started = f"2026-12-01T10:{number:02}:00+00:00"
    manifest.update(what=kind, rig=rig, started=started, ended=started if ended else None)
    manifest["plan"]["quick"] = quick
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "samples.jsonl").write_text("{}\n")


if __name__ == "__main__":
    sys.exit(main())
