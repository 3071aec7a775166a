"""Limits: how long a test waits for what should take moments."""

HANG_S = 600.0
"""only what hangs takes so long, whatever else the host does; pytest's own limit is longer"""
