"""Find the rig's best setting for a workload; APPLY=1 writes it into tpu.env."""

import os
from pathlib import Path

from common.kinds.tune import apply as tune_apply
from common.kinds.tune import plan as tune_plan
from common.rig import FILE, Rig
from scripts import cli, measuring, preparing


def body() -> int:
    loaded, out = measuring.arguments(__doc__)
    apply, quick, finished = cli.flag("APPLY"), cli.flag("QUICK"), os.environ.get("RUN")
    if apply:
        tune_apply.check(loaded, quick)
    folder = Path(finished) if finished else _measured(loaded, out, quick)
    for key, value in tune_apply.recommended(folder).items():
        cli.say(f"{key}={value}")
    if apply:
        done = "written into" if tune_apply.apply(loaded, folder) else "nothing to write into"
        cli.say(f"{done} {loaded.folder / FILE}")
    return 0


def _measured(loaded: Rig, out: Path | None, quick: bool) -> Path:
    """The run directory of a new run, or of one that RESUME=1 went on with."""
    rig = tune_plan.base(loaded)
    built = preparing.prepare(rig)
    if rig.tune_for == "documents":
        plan = measuring.with_tokenizer(
            rig, built, lambda tokenizer: tune_plan.plan(rig, tokenizer, quick)
        )
    else:
        plan = tune_plan.plan(rig, quick=quick)
    return measuring.measure_into(rig, plan, out, built)


if __name__ == "__main__":
    cli.main(body)
