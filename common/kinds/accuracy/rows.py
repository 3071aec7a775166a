"""Rows: the figures of an accuracy run in the shape that compare has."""

from collections.abc import Iterator

from common.kinds.accuracy.schema import Summary
from common.measure.journal import Manifest
from common.measure.quantities import Row, drift, figure, kept_share, speed_up
from common.measure.rows import significant


def rows(summary: Summary, _manifest: Manifest) -> Iterator[Row | None]:
    first, second = summary["arms"]
    for test in summary["tests"]:
        name = test["test"].upper()
        for score in test["scores"]:
            place = f"{name}, {score['score']}"
            told = zip((first, second), score["right"], score["intervals"], strict=True)
            for arm, right, (low, high) in told:
                share = significant(right / test["questions"])
                note = f"{right} of {test['questions']}"
                yield figure("score", "share", arm, share, place, low=low, high=high, note=note)
            yield figure(
                "difference",
                "share",
                f"{second} less {first}",
                score["difference"],
                place,
                low=score["low"],
                high=score["high"],
                verdict=score["verdict"],
                note=f"exact McNemar p {score['p_value']:.3g}",
            )
        for work in test["work"]:
            yield figure(
                "tokens_per_second", "tokens/s", work["arm"], work["tokens_per_second"], name
            )
            yield speed_up(work["speed_up"], work["arm"], name)
            yield kept_share(work["kept"], work["arm"], name)
        equal = test["equal_replies"]
        yield figure(
            "equal_replies", "replies", second, equal["equal"], name, note=f"of {equal['of']}"
        )
    yield drift(summary)
