"""Measure what drafting costs at set acceptances, on a pair of random weights."""

from pathlib import Path

from tqdm import tqdm

from common import cost, gpu
from scripts import cli, measuring


def body() -> int:
    parser = cli.parser(__doc__)
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, help="folder for the run")
    arguments = parser.parse_args()
    rig = cost.base(cli.load_rig(arguments.rig))
    gpu.find(rig)  # nothing is made for a rig that cannot run
    shape = str(rig.cost_shape)
    missing = cost.missing_values(shape)
    if missing:
        cli.say(f"making a pair of {shape}'s layer sizes with random weights")
    with tqdm(total=missing, unit="value", unit_scale=True, disable=None, leave=False) as bar:
        cost.make(shape, bar.update)
    return measuring.measure(rig, cost.plan(rig, cli.flag("QUICK")), arguments.out)


if __name__ == "__main__":
    cli.main(body)
