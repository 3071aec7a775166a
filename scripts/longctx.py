"""Measure how deep in a long context the drafter's gain reaches."""

from common.kinds.longctx import plan as longctx
from scripts import cli, measuring, preparing


def body() -> int:
    rig, out = measuring.arguments(__doc__)
    rig = longctx.base(rig)
    quick = cli.flag("QUICK")
    built = preparing.prepare(rig)
    plan = measuring.with_tokenizer(
        rig, built, lambda tokenizer: longctx.plan(rig, tokenizer, quick)
    )
    return measuring.measure(rig, plan, out, built)


if __name__ == "__main__":
    cli.main(body)
