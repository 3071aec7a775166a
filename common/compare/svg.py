"""Figures of the compare page as inline SVG: narrow enough for a phone, coloured by the page's CSS.

Everything is drawn by hand, not by a plotting library, so that text stays text, colours follow the
reader's light or dark setting, and ids cannot clash when several figures share one page.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT = 480, 14, 70
ROW, TOP = 40, 8
# Round numbers to choose the ticks of an axis from: the finest that are not too many.
STEPS = ((1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,))
MOST_TICKS = 6


@dataclass(frozen=True)
class Point:
    """A value with its 95% interval, as measured or as published."""

    value: float
    low: float | None = None
    high: float | None = None
    style: str = "even"
    """a class of the page: pays, even, loses, unknown, or published"""


def forest(
    name: str, title: str, rows: Sequence[tuple[str, Point, str]], xlabel: str, line: bool
) -> str:
    """One row per (label, point, figure in words), on a logarithmic axis; `line` marks 1."""
    start, end = _range([point for _, point, _ in rows], line)
    bottom = TOP + ROW * len(rows)

    def x(value: float) -> float:
        inside = min(max(value, start), end)
        share = math.log(inside / start) / math.log(end / start)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    parts = _axis(_ticks(start, end), x, bottom, xlabel)
    if line:
        parts.append(_line(x(1), TOP, x(1), bottom, "one"))
    for index, (label, point, words) in enumerate(rows):
        y = TOP + ROW * index
        parts.append(_text(LEFT, y + 13, label, "label"))
        if point.low is not None and point.high is not None:
            parts.append(_line(x(point.low), y + 26, x(point.high), y + 26, f"bar {point.style}"))
        parts.append(_diamond(x(point.value), y + 26, point.style))
        parts.append(_text(WIDTH, y + 30, words, f"value {point.style}", "end"))
    described = "; ".join(f"{label}: {words}" for label, _, words in rows)
    return _svg(name, title, described, bottom + 38, parts)


def curves(
    name: str, title: str, series: Mapping[str, Sequence[tuple[str, Point]]], xlabel: str
) -> str:
    """Speed-ups along named steps (depths, requests at once), a line with its band per series."""
    steps = list(dict.fromkeys(step for points in series.values() for step, _ in points))
    start, end = _range([point for points in series.values() for _, point in points], True)
    top, bottom, left = 14, 214, 46

    def x(step: str) -> float:
        gap = (WIDTH - left - 42) / max(1, len(steps) - 1)
        return left + 8 + gap * steps.index(step)

    def y(value: float) -> float:
        inside = min(max(value, start), end)
        return bottom - math.log(inside / start) / math.log(end / start) * (bottom - top)

    parts = []
    for tick in _ticks(start, end):
        parts.append(_line(left, y(tick), WIDTH - 8, y(tick), "one" if tick == 1 else "grid"))
        parts.append(_text(left - 6, y(tick) + 4, f"{tick:g}x", "tick", "end"))
    for step in steps:
        parts.append(_text(x(step), bottom + 18, step, "tick", "middle"))
    parts.append(_text((left + WIDTH) / 2, bottom + 38, xlabel, "tick", "middle"))
    for index, (label, points) in enumerate(series.items()):
        parts += _curve(
            [(x(step), y(p.value)) for step, p in points],
            [
                (x(step), y(p.low), y(p.high))
                for step, p in points
                if p.low is not None and p.high is not None
            ],
            f"s{index % 6}",
        )
        at = bottom + 60 + 20 * index
        parts.append(_line(left, at - 4, left + 26, at - 4, f"curve s{index % 6}"))
        parts.append(_text(left + 34, at, label, "label"))
    described = "; ".join(
        f"{label}: " + ", ".join(f"{p.value:.2f}x at {step}" for step, p in points)
        for label, points in series.items()
    )
    return _svg(name, title, described, bottom + 50 + 20 * len(series), parts)


def _range(points: Sequence[Point], line: bool) -> tuple[float, float]:
    """The ends of a logarithmic axis. A wide interval of few prompts must not press the rest flat:
    it is cut off at twice the range of the values; the table has its ends."""
    values = [point.value for point in points] + ([1.0] if line else [])
    lows = [point.low for point in points if point.low is not None and point.low > 0]
    highs = [point.high for point in points if point.high is not None]
    start = max(min([*values, *lows]), min(values) / 2)
    return start / 1.1, min(max([*values, *highs]), max(values) * 2) * 1.1


def _curve(
    line: Sequence[tuple[float, float]], band: Sequence[tuple[float, float, float]], style: str
) -> list[str]:
    parts = []
    if len(band) > 1:
        edge = [(x, low) for x, low, _ in band] + [(x, high) for x, _, high in reversed(band)]
        parts.append(f'<polygon class="band {style}" points="{_points(edge)}"/>')
    parts.append(f'<polyline class="curve {style}" points="{_points(line)}"/>')
    parts += [f'<circle class="dot {style}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in line]
    return parts


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _ticks(start: float, end: float) -> list[float]:
    """Round numbers inside the axis, 1 among them if it is there."""
    found: list[float] = []
    for steps in STEPS:
        found = [m * 10.0**e for e in range(-3, 6) for m in steps if start <= m * 10.0**e <= end]
        if len(found) <= MOST_TICKS:
            break
    return found


def _axis(
    ticks: Sequence[float], x: Callable[[float], float], bottom: float, xlabel: str
) -> list[str]:
    parts = []
    for tick in ticks:
        parts.append(_line(x(tick), TOP, x(tick), bottom, "grid"))
        parts.append(_text(x(tick), bottom + 14, f"{tick:g}", "tick", "middle"))
    return [*parts, _text(LEFT, bottom + 32, xlabel, "tick")]


def _line(x0: float, y0: float, x1: float, y1: float, style: str) -> str:
    return f'<line class="{style}" x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}"/>'


def _diamond(x: float, y: float, style: str) -> str:
    places = [(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)]
    return f'<polygon class="mark {style}" points="{_points(places)}"/>'


def _text(x: float, y: float, text: str, style: str, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}"'
    return f'<text class="{style}" {place} text-anchor="{anchor}">{escape(text)}</text>'


def _svg(name: str, title: str, described: str, height: float, parts: Sequence[str]) -> str:
    inside = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-labelledby="{name}-title {name}-desc">\n'
        f'<title id="{name}-title">{escape(title)}</title>\n'
        f'<desc id="{name}-desc">{escape(described)}</desc>\n{inside}\n</svg>'
    )
