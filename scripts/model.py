"""Bring the rig's main model to the models folder, checked."""

from common.files import wanted
from scripts import cli, preparing


def body() -> None:
    rig = cli.load_rig(cli.parser(__doc__).parse_args().rig)
    preparing.fetch_files(rig, ("model",))
    model = wanted.wanted(rig)[0]
    cli.say(f"model: {model.path}, {wanted.judgement(model)}")


if __name__ == "__main__":
    cli.main(body)
