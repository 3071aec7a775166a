"""Runs a script's body as its own process would be run, without the cost of one."""

from collections.abc import Callable, Sequence

import pytest

from scripts import cli


def run_script(body: Callable[[Sequence[str]], int | None], arguments: Sequence[str]) -> int:
    """The exit code; what it prints goes where the caller's output goes."""
    with pytest.raises(SystemExit) as caught:
        cli.main(lambda: body(arguments))
    assert isinstance(caught.value.code, int)
    return caught.value.code
