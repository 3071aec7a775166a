"""Claims about times, on machines that do other things meanwhile."""

from collections.abc import Callable

TRIES = 10


def one_of_few_tries(fits: Callable[[], bool]) -> bool:
    """Whether it fits at least once: a busy machine spoils some tries, a wrong program all."""
    return any(fits() for _ in range(TRIES))
