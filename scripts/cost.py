"""Measure what drafting costs at set acceptances, on a pair of random weights."""

from tqdm import tqdm

from common.host import card
from common.kinds.cost import plan as cost
from scripts import cli, measuring


def body() -> int:
    rig, out = measuring.arguments(__doc__)
    rig = cost.base(rig)
    card.find(rig)  # nothing is made for a rig that cannot run
    shape = str(rig.cost_shape)
    missing = cost.missing_values(shape)
    if missing:
        cli.say(f"making a pair of {shape}'s layer sizes with random weights")
    with tqdm(total=missing, unit="value", unit_scale=True, disable=None, leave=False) as bar:
        cost.make(shape, bar.update)
    return measuring.measure(rig, cost.plan(rig, cli.flag("QUICK")), out)


if __name__ == "__main__":
    cli.main(body)
