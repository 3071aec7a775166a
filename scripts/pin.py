"""Write the full SHA-256 and the resolved revision of the rig's files into its tpu.env."""

from tqdm import tqdm

from common.files import pin
from common.rig import FILE
from scripts import cli, preparing


def body() -> None:
    rig = cli.load_rig(cli.parser(__doc__).parse_args().rig)
    with preparing.download_bar() as progress:
        changes = pin.pin(rig, tqdm.write, progress)
    for key, value in changes.items():
        cli.say(f"{rig.folder / FILE}: {key}={value}")


if __name__ == "__main__":
    cli.main(body)
