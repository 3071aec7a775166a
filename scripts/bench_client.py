"""Measure what the streaming client costs per chunk, beside llama-benchy and AIPerf.

Exits with 1 if the client costs more than it may beside the lightest of them. Without one there is
no verdict.
"""

import os
from typing import Any

from tqdm import tqdm

from common import report
from common.errors import RigError
from common.host import alone, facts
from common.kinds.bench_client import plan
from common.kinds.bench_client import report as bench_report
from common.kinds.bench_client import summary as bench
from common.kinds.bench_client.peers import PEERS, Peer
from common.measure import run
from scripts import _cli


def body() -> int:
    loaded = _cli.load_rig(_cli.parser(__doc__).parse_args().rig)
    rounds = 1 if _cli.flag("QUICK") else plan.ROUNDS
    peers, absent = at_hand(os.environ.get("PEERS", ",".join(peer.name for peer in PEERS)))
    manifest = {
        "clients": [plan.OURS, *(peer.name for peer in peers)],
        "versions": {peer.name: peer.version for peer in peers},
        "absent": absent,
        "streams": list(plan.STREAMS),
        "rounds": rounds,
        "schedule": {"chunks": plan.CHUNKS, "rate": plan.RATE, "ttft_s": plan.TTFT_S},
        "harness": facts.harness(),
        "host": facts.host(),
    }
    turns = [(turn, streams) for turn in range(rounds) for streams in plan.STREAMS]
    with (
        alone.measuring(f"bench-client of {loaded.name}"),
        run.create(loaded, "bench-client", manifest) as current,
        plan.mock_server() as url,
    ):
        with tqdm(total=len(turns) * (1 + len(peers)), unit="run", disable=None) as bar:
            for turn, streams in turns:
                for peer in (None, *peers):
                    name = peer.name if peer else plan.OURS
                    bar.set_description(f"{streams} streams, {name}")
                    line = {"round": turn, "client": name, "streams": streams}
                    current.append(run.JOURNAL, {**line, **measured(peer, url, streams)})
                    bar.update()
        current.finish()
        path = report.write(current.folder)
    summary = bench.summarise(current.folder)
    _cli.say(bench_report.answer(summary))
    _cli.say(f"report: {path}")
    return 1 if summary["verdict"] == "missed" else 0


def at_hand(names: str) -> tuple[list[Peer], dict[str, str]]:
    """The wanted peers that can be had, installing what is missing; and why others cannot."""
    known = {peer.name: peer for peer in PEERS}
    found, absent = [], {}
    for name in filter(None, names.split(",")):
        if name not in known:
            raise RigError(f"PEERS={names}: expected names out of {', '.join(known)}, or nothing")
        peer = known[name]
        try:
            if not peer.installed:
                _cli.say(f"installing {name} {peer.version} into {peer.folder} (minutes, once)")
                peer.install()
            found.append(peer)
        except RigError as error:
            _cli.say(f"left out: {error}")
            absent[name] = str(error)
    return found, absent


def measured(peer: Peer | None, url: str, streams: int) -> dict[str, Any]:
    """A journal line's figures. A peer that fails is noted; our own failure ends the run."""
    if peer is None:
        return {"failed": None, **plan.ours(url, streams)}
    try:
        return {"failed": None, **plan.theirs(peer, url, streams)}
    except RigError as error:
        return {"failed": str(error)}


if __name__ == "__main__":
    _cli.main(body)
