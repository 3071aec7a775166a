"""Measure the drafter with many long requests at once, each behind its own document."""

from common.kinds.sweep import plan as sweep
from scripts import cli, measuring, preparing


def body() -> int:
    rig, out = measuring.arguments(__doc__)
    rig = sweep.longmixed_base(rig)
    quick = cli.flag("QUICK")
    built = preparing.prepare(rig)
    plan = measuring.with_tokenizer(
        rig, built, lambda tokenizer: sweep.longmixed_plan(rig, tokenizer, quick)
    )
    return measuring.measure(rig, plan, out, built)


if __name__ == "__main__":
    cli.main(body)
