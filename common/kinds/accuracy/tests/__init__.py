"""The accuracy tests there are: the one registration. A new one is a file here and a name below."""

from typing import Any

from common.errors import RigError
from common.kinds.accuracy.test import Test
from common.kinds.accuracy.tests import bfcl, gsm8k

# In the order in which they are asked and shown.
TESTS: tuple[Test[Any], ...] = (
    gsm8k.TEST,
    bfcl.TEST,
)


def of(name: str) -> Test[Any]:
    """The test of this name. Raises RigError if this version has none."""
    for test in TESTS:
        if test.name == name:
            return test
    names = ", ".join(test.name for test in TESTS)
    raise RigError(f"there is no accuracy test {name!r} in this version; there are {names}")
