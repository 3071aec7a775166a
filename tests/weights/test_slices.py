"""Slices: every value once, in order, and an error ends the work."""

import time

import pytest

from common.weights import slices


def test_every_value_is_worked_on_once() -> None:
    seen: list[tuple[int, int]] = []
    told: list[int] = []
    sizes = [5, 0, 4]

    def do(number: int, start: int) -> int:
        seen.append((number, start))
        return min(2, sizes[number] - start)

    slices.work(sizes, 2, do, 3, told.append)
    assert sorted(seen) == [(0, 0), (0, 2), (0, 4), (2, 0), (2, 2)]
    assert told == [2, 2, 1, 2, 2]


def test_an_error_stops_what_has_not_begun() -> None:
    seen: list[int] = []

    def do(_number: int, start: int) -> int:
        seen.append(start)
        if start == 3:
            raise ValueError("bad slice")
        time.sleep(0.001)  # time to hear of the error
        return 1

    with pytest.raises(ValueError, match="bad slice"):
        slices.work([10_000], 1, do, 1, lambda _done: None)
    assert len(seen) < 10_000
