"""Figures of a report as SVG: the same bytes for the same numbers.

Each has tips: invisible strokes over its points and bars that say the value under the pointer.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.measure import page
from common.measure.page import LEVEL
from common.measure.summary import Difference, Interval, Kept

# Text stays text and ids come from a fixed salt: no fonts or random numbers in the file.
STYLE = {
    "svg.hashsalt": "gemma-rigs",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
INK, PAYS, EVEN, LOSES = "#333333", "#2a7f62", "#8a8a8a", "#b5482f"
TIPS = "tips"
"""the class of the group of tips"""
# Wide enough to find a point with a pointer.
TIP_STYLE = (
    "fill: none; stroke: #808080; stroke-width: 14; stroke-opacity: 0; pointer-events: stroke"
)
# Makes a line without length a disc. matplotlib sets other ends on every element, so each says it.
ROUND = "stroke-linecap: round"
Tip = tuple[Sequence[tuple[float, float]], str]
"""a point or the ends of a line, in the figure's own units, and what is to be said there"""
COLORS = {"pays": PAYS, "even": EVEN, "loses": LOSES, "unknown": EVEN}


def speed_up(
    path: Path,
    arms: Sequence[tuple[str, Interval]],
    cells: Sequence[tuple[str, float | None]],
    xlabel: str = f"speed-up over no drafter (diamond and bar: mean and {LEVEL}; dots: prompts)",
) -> None:
    """Speed-up per arm with its 95% interval, and one dot per cell (arm, ratio); 1 is even."""
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 0.8 + 0.62 * len(arms)), layout="constrained")
        axes = figure.subplots()
        tips: list[Tip] = []
        for row, (arm, up) in enumerate(arms):
            own = [ratio for name, ratio in cells if name == arm and ratio]
            axes.plot(own, [row] * len(own), "o", color=INK, alpha=0.35, markersize=5)
            color = COLORS[up["verdict"]]
            if up["low"] is not None and up["high"] is not None:
                axes.plot([up["low"], up["high"]], [row, row], color=color, linewidth=5, alpha=0.6)
                tips.append(([(up["low"], row), (up["high"], row)], _said(arm, up)))
            axes.plot(up["ratio"], row, "D", color=color, markersize=8)
            tips += [([(ratio, row)], f"{arm}, one dot: {ratio:.3f}x") for ratio in own]
            tips.append(([(up["ratio"], row)], _said(arm, up)))
            axes.annotate(
                f"{up['ratio']:.2f}x",
                (up["ratio"], row),
                xytext=(0, 9),
                textcoords="offset points",
                ha="center",
                color=color,
                fontweight="bold",
            )
        axes.axvline(1, color=INK, linewidth=1)
        _rows(axes, [arm for arm, _ in arms])
        axes.set_xlabel(xlabel)
        _save(figure, path, tips)


def kept(path: Path, arms: Sequence[tuple[str, Kept]]) -> None:
    """Per arm, the share of drafts that were still right at each position."""
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.2), layout="constrained")
        axes = figure.subplots()
        longest = 1
        tips: list[Tip] = []
        for arm, found in arms:
            shares = [count / found["drafts"] for count in found["accepted_per_pos"][:16]]
            longest = max(longest, len(shares))
            axes.plot(range(1, len(shares) + 1), shares, "o-", label=arm, alpha=0.8)
            tips += [
                ([(at, share)], f"{arm}, position {at}: {share:.3f} of {found['drafts']} drafts")
                for at, share in enumerate(shares, 1)
            ]
        axes.set_ylim(0, 1)
        axes.set_xlim(0.7, longest + 0.3)
        axes.set_xticks(range(1, longest + 1))
        axes.set_xlabel("position in the draft")
        axes.set_ylabel("share of drafts kept")
        axes.legend(frameon=False, fontsize=9, loc="lower left")
        _save(figure, path, tips)


def differences(path: Path, rows: Sequence[tuple[str, Difference]]) -> None:
    """Per score (title, figures) the difference in points with its 95% interval; 0 is no change.

    Of a score that is no test there is nothing to draw.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 0.8 + 0.62 * len(rows)), layout="constrained")
        axes = figure.subplots()
        axes.axvline(0, color=INK, linewidth=1)
        tips: list[Tip] = []
        for row, (title, score) in enumerate(rows):
            if score["verdict"] == "not_a_test":
                box = {"facecolor": "white", "edgecolor": "none"}
                axes.text(0, row, "not a test", color=EVEN, ha="center", va="center", bbox=box)
                continue
            color = {"better": PAYS, "worse": LOSES}.get(score["verdict"], EVEN)
            low, middle, high = (
                100 * share for share in (score["low"], score["difference"], score["high"])
            )
            axes.plot([low, high], [row, row], color=color, linewidth=5, alpha=0.6)
            axes.plot(middle, row, "D", color=color, markersize=8)
            said = f"{title}: {middle:+.1f} points ({LEVEL}: {low:+.1f} to {high:+.1f})"
            tips += [([(low, row), (high, row)], said), ([(middle, row)], said)]
        _rows(axes, [title for title, _ in rows])
        if all(score["verdict"] == "not_a_test" for _, score in rows):
            axes.set_xlim(-1, 1)
            axes.set_xticks([0])
        axes.set_xlabel(
            f"difference of the scores, in points\n(diamond and bar: estimate and {LEVEL})"
        )
        _save(figure, path, tips)


def lines(
    path: Path,
    series: Mapping[str, Sequence[tuple[float, Interval]]],
    xlabel: str,
    doubling: bool = False,
) -> None:
    """Speed-ups along x, one line per arm with its 95% band; x doubles from tick to tick or not."""
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        axes = figure.subplots()
        tips: list[Tip] = []
        for name, points in series.items():
            tips += [([(p, up["ratio"])], _said(f"{name} at {p:,g}", up)) for p, up in points]
            x = [point for point, _ in points]
            (line,) = axes.plot(x, [up["ratio"] for _, up in points], "o-", label=name)
            band = [(p, up["low"], up["high"]) for p, up in points if up["low"] is not None]
            if band:
                at, low, high = zip(*band, strict=True)
                axes.fill_between(at, low, high, color=line.get_color(), alpha=0.18)
        axes.axhline(1, color=INK, linewidth=1)
        # A wide interval of few cells must not press the lines flat; the table has its ends.
        shown = [up["ratio"] for points in series.values() for _, up in points]
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, min(shown) / 2), min(top, max(*shown, 1) * 2))
        if doubling:
            ticks = sorted({point for points in series.values() for point, _ in points})
            axes.set_xscale("log", base=2)
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xlabel(xlabel)
        axes.set_ylabel("speed-up over no drafter")
        axes.legend(frameon=False, fontsize=9)
        _save(figure, path, tips)


def places(path: Path, found: Sequence[tuple[int, int, Interval]]) -> None:
    """Speed-ups by tokens in (across) and requests at once (up), coloured by verdict."""
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.8), layout="constrained")
        axes = figure.subplots()
        across = sorted({depth for depth, _, _ in found})
        up = sorted({at_once for _, at_once, _ in found})
        for depth, at_once, speed in found:
            x, y, color = across.index(depth), up.index(at_once), COLORS[speed["verdict"]]
            axes.plot(x, y, "s", color=color, markersize=30, alpha=0.85)
            text = f"{speed['ratio']:.2f}"
            axes.annotate(text, (x, y), ha="center", va="center", color="white", fontsize=9)
        for verdict in ("pays", "even", "loses"):
            axes.plot([], [], "s", color=COLORS[verdict], label=verdict)
        axes.set_xticks(range(len(across)), [f"{depth:,}" for depth in across])
        axes.set_yticks(range(len(up)), [str(count) for count in up])
        axes.set_xlim(-0.6, len(across) - 0.4)
        axes.set_ylim(-0.7, len(up) - 0.3)
        axes.set_xlabel("tokens in")
        axes.set_ylabel("requests at once")
        axes.legend(frameon=False, fontsize=9, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
        _save(figure, path)


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.7)


def _said(name: str, up: Interval) -> str:
    level = "" if up["low"] is None else f"{LEVEL}: "
    return f"{name}: {page.ratio(up)} ({level}{page.interval(up)}), {up['verdict']}"


def _save(figure: Figure, path: Path, tips: Sequence[Tip] = ()) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    # Trailing blanks trip diff tools and mean nothing.
    lines = [line.rstrip() for line in path.read_text().splitlines()]
    if tips:
        lines[-1:] = [*_drawn(figure, tips), lines[-1]]
    path.write_text("\n".join(lines) + "\n")


def _drawn(figure: Figure, tips: Sequence[Tip]) -> list[str]:
    """The tips as lines of the SVG, the last on top; its unit is the point, its y grows down."""
    (axes,) = figure.axes
    points, height = 72 / figure.dpi, 72 * figure.get_figheight()
    found = [f' <g class="{TIPS}" style="{TIP_STYLE}">']
    for place, said in tips:
        ends = [(x * points, height - y * points) for x, y in axes.transData.transform(place)]
        (x0, y0), (x1, y1) = ends[0], ends[-1]
        path = f'd="M {x0:.2f} {y0:.2f} L {x1:.2f} {y1:.2f}" style="{ROUND}"'
        found.append(f"  <path {path}><title>{escape(said)}</title></path>")
    return [*found, " </g>"]
