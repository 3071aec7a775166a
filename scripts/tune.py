"""Find the rig's best setting for a workload; APPLY=1 writes it into tpu.env."""

import os
from pathlib import Path

from common import tune_apply, tune_plan
from common.rig import FILE
from scripts import cli, measuring


def body() -> int:
    parser = cli.parser(__doc__)
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, help="folder for the run")
    arguments = parser.parse_args()
    loaded = cli.load_rig(arguments.rig)
    apply, quick, finished = cli.flag("APPLY"), cli.flag("QUICK"), os.environ.get("RUN")
    if apply:
        tune_apply.check(loaded, quick)
    folder = Path(finished) if finished else None
    if folder is None:
        rig = tune_plan.base(loaded)
        if rig.tune_for == "documents":
            plan = measuring.with_tokenizer(
                rig, lambda tokenizer: tune_plan.plan(rig, tokenizer, quick)
            )
        else:
            plan = tune_plan.plan(rig, quick=quick)
        folder = measuring.measure_into(rig, plan, arguments.out)
    for key, value in tune_apply.recommended(folder).items():
        cli.say(f"{key}={value}")
    if apply:
        done = "written into" if tune_apply.apply(loaded, folder) else "nothing to write into"
        cli.say(f"{done} {loaded.folder / FILE}")
    return 0


if __name__ == "__main__":
    cli.main(body)
