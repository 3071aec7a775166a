"""Say whether the rig is being served, and how its drafter does. Exit 3 if it is not."""

from common.engines.llamacpp import counters, serve
from common.errors import RigError
from common.serving import record
from scripts import _cli


def body() -> int:
    rig = _cli.load_rig(_cli.parser(__doc__).parse_args().rig)
    found = record.find(rig)
    if found is None:
        _cli.say(f"{rig.name} is not being served; start it with make serve")
        return 3
    if not found.ready:
        _cli.say(f"{rig.name} is starting: process {found.pid or found.script}, log {found.log}")
        return 3
    minutes = found.served_s / 60
    _cli.say(f"{rig.name}: process {found.pid}, for {minutes:.0f} min, log {found.log}")
    if not serve.healthy(found.url):
        raise RigError(f"{found.url} does not answer", fix="see the log, or make stop")
    _cli.say(f"health: ok, {found.url}/v1")
    totals = counters.read(found.url)
    kept = f"{totals.accepted / totals.drafted:.3f}" if totals.drafted else "absent"
    _cli.say(
        f"tokens generated: {totals.predicted_tokens}, drafted: {totals.drafted}, kept: {kept}"
    )
    return 0


if __name__ == "__main__":
    _cli.main(body)
