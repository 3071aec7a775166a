"""Rows: the figures of a tune run in the shape that compare has."""

from collections.abc import Iterator, Sequence

from common.kinds.tune.schema import Summary
from common.measure import energy
from common.measure.journal import Manifest
from common.measure.quantities import Row, drift, figure, kept_share, speed_up

CONFIRMED = "confirmation"
"""where these were measured: on prompts not used to choose the setting"""


def rows(summary: Summary, _manifest: Manifest) -> Iterator[Row | None]:
    for row in (summary["confirm"] or {"rows": []})["rows"]:
        name = row["arm"]
        yield figure("tokens_per_second", "tokens/s", name, row["tokens_per_second"], CONFIRMED)
        each = f"each round: {rounds(row['by_round'])}"
        yield speed_up(row["over_current"], name, CONFIRMED, "speed_over_current", each)
        yield speed_up(row["over_none"], name, CONFIRMED)
        yield kept_share(row["kept"], name, CONFIRMED)
    yield from energy.figures(summary["energy"])
    yield drift(summary)


def rounds(by_round: Sequence[float | None]) -> str:
    """The ratio of each round, in their order."""
    return " ".join("failed" if ratio is None else f"{ratio:.3f}" for ratio in by_round)
