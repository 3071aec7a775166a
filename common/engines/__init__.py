"""Engines: what serves a model. Each is a folder here; whoever only measures sees no further.

An engine's folder has one `serve.py`: its command line and environment, advice for a log, whether
the model lies where the rig says, and what of a reply's events are timings.
"""

from common.engines.llamacpp.build import Engine
from common.rig import Rig

__all__ = ["Engine", "flags"]


def flags(rig: Rig) -> list[str]:
    """What the rig's server is started with when measuring, without the program's name."""
    from common.engines.llamacpp import serve  # building an engine needs no package of ours

    return serve.command(rig, "", measuring=True)[1:]
