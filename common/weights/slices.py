"""Slices: big arrays worked through on several threads, a slice at a time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def work(
    sizes: Sequence[int],
    length: int,
    do: Callable[[int, int], int],
    threads: int,
    progress: Callable[[int], object],
) -> None:
    """Call `do` with the number of an array and a start, for every slice of `length` values.

    progress gets what `do` returns, in order. The first error stops what has not begun, and is
    raised.
    """
    with ThreadPoolExecutor(threads) as pool:
        jobs = [
            pool.submit(do, number, start)
            for number, size in enumerate(sizes)
            for start in range(0, size, length)
        ]
        try:
            for job in jobs:
                progress(job.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
