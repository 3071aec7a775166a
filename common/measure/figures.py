"""Figures of a report as SVG: the same bytes for the same numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
        for row, (arm, up) in enumerate(arms):
            own = [ratio for name, ratio in cells if name == arm and ratio]
            axes.plot(own, [row] * len(own), "o", color=INK, alpha=0.35, markersize=5)
            color = COLORS[up["verdict"]]
            if up["low"] is not None and up["high"] is not None:
                axes.plot([up["low"], up["high"]], [row, row], color=color, linewidth=5, alpha=0.6)
            axes.plot(up["ratio"], row, "D", color=color, markersize=8)
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
        _save(figure, path)


def kept(path: Path, arms: Sequence[tuple[str, Kept]]) -> None:
    """Per arm, the share of drafts that were still right at each position."""
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.2), layout="constrained")
        axes = figure.subplots()
        longest = 1
        for arm, found in arms:
            shares = [count / found["drafts"] for count in found["accepted_per_pos"][:16]]
            longest = max(longest, len(shares))
            axes.plot(range(1, len(shares) + 1), shares, "o-", label=arm, alpha=0.8)
        axes.set_ylim(0, 1)
        axes.set_xlim(0.7, longest + 0.3)
        axes.set_xticks(range(1, longest + 1))
        axes.set_xlabel("position in the draft")
        axes.set_ylabel("share of drafts kept")
        axes.legend(frameon=False, fontsize=9, loc="lower left")
        _save(figure, path)


def differences(path: Path, rows: Sequence[tuple[str, Difference]]) -> None:
    """Per score (title, figures) the difference in points with its 95% interval; 0 is no change.

    Of a score that is no test there is nothing to draw.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 0.8 + 0.62 * len(rows)), layout="constrained")
        axes = figure.subplots()
        axes.axvline(0, color=INK, linewidth=1)
        for row, (_, score) in enumerate(rows):
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
        _rows(axes, [title for title, _ in rows])
        if all(score["verdict"] == "not_a_test" for _, score in rows):
            axes.set_xlim(-1, 1)
            axes.set_xticks([0])
        axes.set_xlabel(
            f"difference of the scores, in points\n(diamond and bar: estimate and {LEVEL})"
        )
        _save(figure, path)


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
        for name, points in series.items():
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
        _save(figure, path)


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


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    # Trailing blanks trip diff tools and mean nothing.
    lines = [line.rstrip() for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")
