"""Bring the rig's drafter to the models folder, checked."""

from common.files import wanted
from scripts import cli, preparing


def body() -> None:
    rig = cli.load_rig(cli.parser(__doc__).parse_args().rig)
    preparing.fetch_files(rig, ("drafter",))
    drafters = [file for file in wanted.wanted(rig) if file.role == "drafter"]
    for file in drafters:
        cli.say(f"drafter: {file.path}, {wanted.judgement(file)}")
    if not drafters:
        cli.say(f"{rig.name} uses no drafter file (SPEC_TYPE={rig.spec_type or ''})")


if __name__ == "__main__":
    cli.main(body)
