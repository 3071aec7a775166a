"""Tables: what every arm did at every place, in a sweep's or longmixed's report."""

from collections.abc import Iterator

from common.kinds.sweep.plan import LAYOUTS
from common.kinds.sweep.schema import Limits, Measured, Summary
from common.measure import page
from common.measure.summary import SpeedUp

LOOP = "loop"


def by_shape(summary: Summary) -> list[str]:
    """The drafter's speed-up in batches of each shape; nothing where there is one only."""
    if not summary["by_shape"]:
        return []
    rows = [
        [
            row["kind"],
            row["shape"],
            str(row["at_once"]),
            *(text for layout in LAYOUTS for text in _speed_up(row["drafter"][layout])),
        ]
        for row in summary["by_shape"]
    ]
    head = ["prompts", "in/out", "at once"]
    for layout in LAYOUTS:
        head += [f"{layout} ({page.LEVEL})", "each round", "verdict"]
    return ["## By shape", page.table(head, rows), "Drafter over none, in batches."]


def _speed_up(up: SpeedUp | None) -> list[str]:
    if up is None:
        return ["", "", ""]
    return [f"{page.ratio(up)} ({page.interval(up)})", page.each_round(up), up["verdict"]]


def _places(summary: Summary) -> Iterator[tuple[list[str], Measured]]:
    """Prompts, shape, requests at once and arm, with what was measured there."""
    for row in summary["rows"]:
        yield [row["kind"], row["shape"], str(row["at_once"]), row["arm"]], row
    for one in summary["loops"]:
        yield [one["kind"], LOOP, str(one["at_once"]), one["arm"]], one


PLACE = ["prompts", "in/out", "at once", "arm"]


def loads(summary: Summary) -> str:
    """What the server did."""
    rows = [
        [
            *place,
            page.number(row["tokens_per_second"]),
            page.percent(row["round_spread"]),
            page.number(row["total_per_second"]),
            page.number(row["requests_per_second"], 2),
            page.number(row["busy_slots"], 2),
            page.kept(row["kept"]) if row["trials"] else "",
            str(row["trials"]),
        ]
        for place, row in _places(summary)
    ]
    head = ["tokens/s", "spread", "in + out/s", "requests/s", "busy slots", "kept", "trials"]
    return page.table([*PLACE, *head], rows)


def waits(summary: Summary) -> str:
    """What users wait for."""
    closely = any(row["waits"]["gaps"] for _, row in _places(summary))
    judged = _limits(summary["limits"])
    rows = []
    for place, row in _places(summary):
        own = row["waits"]
        rows.append(
            [
                *place,
                page.percentiles(own["ttft"], digits=0),
                page.percentiles(own["tpot"], digits=2),
                page.percentiles(own["reply"], per=1000, digits=2),
                *([page.percent(own["goodput"])] if judged else []),
                *(page.gaps(own["gaps"]) if closely else []),
                str(own["requests"]),
            ]
        )
    head = ["TTFT ms", "TPOT ms", "reply s", *(["goodput"] if judged else [])]
    head += page.GAPS if closely else []
    return page.table([*PLACE, *head, "requests"], rows)


def waits_text(summary: Summary) -> str:
    """What the columns of `waits` are."""
    text = (
        "Request by request, as half / 9 in 10 / 99 in 100 are no slower: TTFT is the time to the "
        "first text, TPOT the time per output token after it, *reply* the whole of it."
    )
    if summary["loops"]:
        text += " Of closed loops without every user's first request: all users begin at once."
    judged = _limits(summary["limits"])
    if judged:
        text += f" *Goodput* is the share of requests with {judged}."
    if any(row["waits"]["gaps"] for _, row in _places(summary)):
        text += f" {page.GAPS_TEXT}"
    return text


def _limits(limits: Limits) -> str:
    told = []
    if limits["ttft"] is not None:
        told.append(f"TTFT to {limits['ttft']:g} ms (GOODPUT_TTFT_MS)")
    if limits["tpot"] is not None:
        told.append(f"TPOT to {limits['tpot']:g} ms (GOODPUT_TPOT_MS)")
    return " and ".join(told)
