"""Set-up: .venv with the packages of the lock file. Where they are there already, it says nothing.

Runs with the host's own Python, before any package is installed. This file must stay readable to
Python 3.6, so that an old Python gets one line and no syntax error; the work is in common/packages.
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
TOO_OLD = "Python 3.10 or newer is needed; name one: make setup BASE_PYTHON=python3.12"


def stay_with_the_first_choice() -> None:
    """Go on as the Python that .venv was made with, unless the caller names one by BASE_PYTHON.

    Otherwise `make setup BASE_PYTHON=python3.12` would be undone by the next plain `make demo`.
    """
    if os.environ.get("BASE_PYTHON"):
        return
    try:
        record = json.loads((ROOT / ".venv" / ".ready").read_text())
        base, version = record["base"], record["python"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    if version == sys.implementation.cache_tag or not isinstance(base, str):
        return
    try:
        os.environ["BASE_PYTHON"] = base
        os.execv(base, [base, __file__, *sys.argv[1:]])  # noqa: S606 (the recorded interpreter)
    except (OSError, ValueError):  # it is gone, or no program
        del os.environ["BASE_PYTHON"]


def terminated(_signal: int, _frame: "FrameType | None") -> None:
    raise SystemExit(143)


def main() -> None:
    stay_with_the_first_choice()
    if sys.version_info < (3, 10):  # noqa: UP036 (no package has refused it yet)
        sys.exit(TOO_OLD)
    signal.signal(signal.SIGTERM, terminated)
    sys.path.insert(0, str(ROOT))
    from common import packages
    from common.errors import RigError

    kinds = list(packages.LOCKS)
    if len(sys.argv) != 2 or sys.argv[1] not in kinds:
        print(f"usage: setup.py {'|'.join(kinds)}", file=sys.stderr)
        sys.exit(2)
    try:
        packages.ensure(ROOT, sys.argv[1])
    except RigError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print("stopped; the next make goes on", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
