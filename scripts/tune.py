"""Find the rig's best setting for a workload; APPLY=1 writes it into tpu.env."""

import os
from pathlib import Path

from common import kinds
from common.kinds.tune import apply as tune_apply
from common.rig import FILE
from scripts import _cli, _measuring


def body() -> int:
    loaded, out, _ = _measuring.arguments(_cli.parser(__doc__))
    apply, quick, finished = _cli.flag("APPLY"), _cli.flag("QUICK"), os.environ.get("RUN")
    if apply:
        tune_apply.check(loaded, quick)
    folder = Path(finished) if finished else _measuring.measure_kind(kinds.of("tune"), loaded, out)
    for key, value in tune_apply.recommended(folder).items():
        _cli.say(f"{key}={value}")
    if apply:
        done = "written into" if tune_apply.apply(loaded, folder) else "nothing to write into"
        _cli.say(f"{done} {loaded.folder / FILE}")
    return 0


if __name__ == "__main__":
    _cli.main(body)
