"""Engines: what serves a model. Each is a folder here; whoever only measures sees no further.

An engine's folder has one `serve.py`: its command line and environment, advice for a log, whether
the model lies where the rig says, and what of a reply's events are timings.
"""

from common.engines.llamacpp.build import Engine

__all__ = ["Engine"]
