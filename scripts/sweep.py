"""Measure the drafter with many requests at once, and what the KV layout costs."""

from common.kinds.sweep import plan as sweep
from scripts import cli, measuring, preparing


def body() -> int:
    rig, out = measuring.arguments(__doc__)
    rig = sweep.sweep_base(rig)
    quick = cli.flag("QUICK")
    built = preparing.prepare(rig)
    plan = measuring.with_tokenizer(
        rig, built, lambda tokenizer: sweep.sweep_plan(rig, tokenizer, quick)
    )
    return measuring.measure(rig, plan, out, built)


if __name__ == "__main__":
    cli.main(body)
