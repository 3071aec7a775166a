"""Compare the greedy text with a drafter to the text without, and write a dated report."""

from common.kinds.identity import plan as identity
from scripts import cli, measuring, preparing


def body() -> int:
    rig, out = measuring.arguments(__doc__)
    built = preparing.prepare(rig)
    plan = measuring.with_tokenizer(rig, built, lambda tokenizer: identity.plan(rig, tokenizer))
    return measuring.measure(rig, plan, out, built)


if __name__ == "__main__":
    cli.main(body)
