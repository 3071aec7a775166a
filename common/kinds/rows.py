"""Measured: the figures of any run in one shape, one row each, from its summary.

Every row says what was measured (`quantity`, `arm`, `place`, `unit`), the value and, where there is
one, its 95% interval. A kind of measurement that has no rows here is still listed, by its answer.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from common.kinds.cost import report as cost_report
from common.kinds.longctx import report as longctx_report
from common.kinds.sweep import report as sweep_report
from common.measure.rows import significant

Row = dict[str, Any]
Summary = Mapping[str, Any]


def rows(summary: Summary, manifest: Mapping[str, Any]) -> list[Row]:
    """The figures of one run; empty for a kind without figures of its own here."""
    make = KINDS.get(summary["what"])
    return [] if make is None else [row for row in make(summary, manifest) if row]


def place_of(what: str, cell: Mapping[str, Any]) -> str:
    """Where a cell of the manifest belongs: the place its figures are given for."""
    if what == "longctx":
        return _depth(cell["depth"])
    if what in ("sweep", "longmixed"):
        return _at_once(cell["kind"], cell["at_once"])
    return ""


def _depth(depth: int) -> str:
    return f"depth {depth:,}"


def _at_once(kind: str, count: int) -> str:
    return f"{kind}, {count} at once"


def _row(
    quantity: str, unit: str, arm: str, value: float | None, place: str = "", **other: Any
) -> Row | None:
    """A row, or None where the value is absent."""
    if value is None:
        return None
    empty = {"low": None, "high": None, "verdict": None, "note": None}
    return {"quantity": quantity, "arm": arm, "place": place, "unit": unit, "value": value,
            **empty, **other}  # fmt: skip


def _up(
    up: Mapping[str, Any] | None, arm: str, place: str = "", quantity: str = "speed_up"
) -> Row | None:
    if up is None:
        return None
    return _row(quantity, "x", arm, up["ratio"], place, low=up["low"], high=up["high"],
                verdict=up["verdict"])  # fmt: skip


def _kept(kept: Mapping[str, Any] | None, arm: str, place: str = "") -> Row | None:
    return _row("kept", "share", arm, kept["share"], place) if kept else None


def _memory(found: Mapping[str, Any], arm: str) -> Row | None:
    """Peak memory of the card if there is one, else of the process."""
    if found["card_peak"] is not None:
        return _row("card_memory", "MiB", arm, found["card_peak"])
    return _row("process_memory", "MiB", arm, found["process_peak"])


def _drift(summary: Summary) -> Row | None:
    drift = summary["drift"]
    if drift["change"] is None:
        return None
    return _row("drift", "%", drift["arm"], significant(100 * drift["change"]))


def _speed(summary: Summary, manifest: Mapping[str, Any]) -> Iterator[Row | None]:
    for arm in summary["arms"]:
        name = arm["arm"]
        yield _row("tokens_per_second", "tokens/s", name, arm["tokens_per_second"])
        yield _up(arm["speed_up"], name)
        yield _kept(arm["kept"], name)
        yield _row("ttft", "ms", name, arm["ttft_ms"])
        yield _memory(arm["memory_mib"], name)
    drafting = [arm for arm in summary["arms"] if arm["speed_up"]]
    if drafting:
        best = max(drafting, key=lambda arm: float(arm["speed_up"]["ratio"]))["arm"]
        length = manifest["plan"]["arms"].get(best, {}).get("SPEC_DRAFT_N_MAX")
        yield _row("best_draft_length", "tokens", best, int(length) if length else None)
    for arm in summary["sampled"]:
        yield _up(arm["speed_up"], arm["arm"], "temperature 0.8")
    yield _drift(summary)


def _longctx(summary: Summary, _manifest: Mapping[str, Any]) -> Iterator[Row | None]:
    for row in summary["rows"]:
        arm, place = row["arm"], _depth(row["depth"])
        yield _row("tokens_per_second", "tokens/s", arm, row["tokens_per_second"], place)
        yield _up(row["speed_up"], arm, place)
        yield _kept(row["kept"], arm, place)
    for gone in summary["gone"]:
        note = longctx_report.in_words(gone)
        value = gone["deepest"] if gone["at"] is None else gone["at"]
        quantity = "gain_gone_at" if gone["at"] is not None else "deepest_measured"
        yield _row(quantity, "tokens", gone["arm"], value, note=note, low=gone["low"],
                   high=gone["high"])  # fmt: skip
    yield _drift(summary)


def _sweep(summary: Summary, _manifest: Mapping[str, Any]) -> Iterator[Row | None]:
    for row in summary["ratios"]:
        place = _at_once(row["kind"], row["at_once"])
        for layout, up in row["drafter"].items():
            yield _up(up, f"drafter, {layout}", place)
        for name, up in row["sharing"].items():
            yield _up(up, name, place, "shared_over_per_slot")
    for row in summary["rows"]:
        place = f"{row['kind']} {row['shape']}, {row['at_once']} at once"
        yield _row("tokens_per_second", "tokens/s", row["arm"], row["tokens_per_second"], place)
        yield _kept(row["kept"], row["arm"], place)
    for turn in summary["turns"]:
        note = sweep_report.in_words(turn)
        value = turn["most"] if turn["at"] is None else turn["at"]
        quantity = "gain_gone_at" if turn["at"] is not None else "most_measured"
        yield _row(quantity, "requests", f"drafter, {turn['layout']}", value, turn["kind"],
                   note=note, low=turn["low"], high=turn["high"])  # fmt: skip
    yield _drift(summary)


def _accuracy(summary: Summary, _manifest: Mapping[str, Any]) -> Iterator[Row | None]:
    first, second = summary["arms"]
    for test in summary["tests"]:
        name = test["test"].upper()
        for score in test["scores"]:
            place = f"{name}, {score['score']}"
            for arm, right in zip((first, second), score["right"], strict=True):
                share = significant(right / test["questions"])
                note = f"{right} of {test['questions']}"
                yield _row("score", "share", arm, share, place, note=note)
            yield _row("difference", "share", f"{second} less {first}", score["difference"], place,
                       low=score["low"], high=score["high"],
                       note=f"exact McNemar p {score['p_value']:.3g}")  # fmt: skip
        for work in test["work"]:
            yield _row("tokens_per_second", "tokens/s", work["arm"], work["tokens_per_second"],
                       name)  # fmt: skip
            yield _up(work["speed_up"], work["arm"], name)
            yield _kept(work["kept"], work["arm"], name)
        equal = test["equal_replies"]
        yield _row("equal_replies", "replies", second, equal["equal"], name,
                   note=f"of {equal['of']}")  # fmt: skip
    yield _drift(summary)


def _identity(summary: Summary, _manifest: Mapping[str, Any]) -> Iterator[Row | None]:
    for arm in summary["arms"]:
        place = "control" if arm["control"] else ""
        yield _row("equal_replies", "replies", arm["arm"], arm["equal"], place,
                   note=f"of {arm['of']}; {arm['near_ties']} part at a near-tie")  # fmt: skip


def _formats(summary: Summary, _manifest: Mapping[str, Any]) -> Iterator[Row | None]:
    for arm in summary["arms"]:
        name = arm["arm"]
        yield _row("tokens_per_second", "tokens/s", name, arm["tokens_per_second"])
        yield _up(arm["speed_up"], name)
        yield _up(arm["over_own"], name, quantity=f"speed_over_{summary['own'].lower()}")
        yield _kept(arm["kept"], name)
        yield _memory(arm["memory_mib"], name)
    equal = summary["all_equal"]
    yield _row("equal_replies", "replies", "all formats", equal["equal"],
               note=f"of {equal['of']}")  # fmt: skip
    yield _drift(summary)


def _cost(summary: Summary, _manifest: Mapping[str, Any]) -> Iterator[Row | None]:
    for arm in summary["arms"]:
        yield _row("tokens_per_second", "tokens/s", arm["arm"], arm["tokens_per_second"])
        yield _up(arm["speed_up"], arm["arm"])
    for row in summary["break_even"]:
        arm, note = f"n={row['draft_length']}", cost_report.in_words(row)
        yield _row("step_cost", "x", arm, row["step_cost"], note=f"break-even: {note}")
        yield _row("break_even_acceptance", "share", arm, row["at"], low=row["low"],
                   high=row["high"], note=note)  # fmt: skip
        yield _row("break_even_by_cost", "share", arm, row["by_cost"])
    yield _drift(summary)


KINDS: dict[str, Callable[[Summary, Mapping[str, Any]], Iterator[Row | None]]] = {
    "speed": _speed,
    "longctx": _longctx,
    "sweep": _sweep,
    "longmixed": _sweep,
    "accuracy": _accuracy,
    "identity": _identity,
    "formats": _formats,
    "cost": _cost,
}
