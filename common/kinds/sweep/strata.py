"""Strata: a speed-up over shapes, which are chosen and not drawn.

A shape's speed-up is what it is for every prompt of that shape, so how far shapes lie apart says
nothing of how sure their mean is. What varies are prompts and server starts, and every round has
its own of both: within a round each shape's ratios are averaged, then the shapes, and rounds are
the units of the interval.
"""

import dataclasses
from collections.abc import Mapping

from common.measure import rows, stats
from common.measure.summary import SpeedUp

UNITS = 3
"""rounds that an interval needs; two of them can only give one that says nothing"""


def speed_up(
    baseline: Mapping[stats.Key, float],
    arm: Mapping[stats.Key, float],
    shape_of: Mapping[str, str],
) -> SpeedUp | None:
    """Speed-up of an arm, each shape (cell -> shape) counting the same; None if nothing can be
    paired. A round in which one of the shapes is missing is left out."""
    shapes: dict[str, dict[str, list[float]]] = {}
    for cell, turn in baseline.keys() & arm.keys():
        own = shapes.setdefault(turn, {}).setdefault(shape_of[cell], [])
        own.append(arm[cell, turn] / baseline[cell, turn])
    every = {shape for found in shapes.values() for shape in found}
    means = {
        turn: stats.geometric_mean([stats.geometric_mean(sorted(own)) for own in found.values()])
        for turn, found in sorted(shapes.items())
        if found.keys() == every
    }
    if not means:
        return None
    units = {(turn, turn): ratio for turn, ratio in means.items()}
    up = stats.speed_up(dict.fromkeys(units, 1.0), units)
    if len(means) < UNITS:
        up = dataclasses.replace(up, low=None, high=None)
    return rows.as_data(up)
