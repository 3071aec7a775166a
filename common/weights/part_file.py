"""A file written under NAME.part that gets its name only when whole."""

import os
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from common.errors import RigError

# A link of that name is not written through: it may lead to any file of the user's.
FLAGS = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW


class PartFile:
    """A context manager over a file of known length.

    Leaving it without an error syncs NAME.part and renames it to NAME; leaving it with one deletes
    the part. Raises RigError if NAME exists, and for what the disk refuses.
    """

    def __init__(self, path: Path, length: int) -> None:
        if path.exists():
            raise RigError(f"{path} exists; choose another name or remove it")
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._length = length
        self._file = -1

    def __enter__(self) -> "PartFile":
        try:
            self._file = os.open(self._part, FLAGS, 0o644)
            os.truncate(self._file, self._length)
        except OSError as error:
            if self._file >= 0:
                os.close(self._file)
            raise RigError(f"cannot write {self._part}: {error.strerror}") from error
        return self

    def write(self, at: int, data: bytes | npt.NDArray[Any]) -> None:
        """Write `data` from byte `at` on; safe from several threads."""
        view = memoryview(data if isinstance(data, bytes) else data.reshape(-1).view(np.uint8).data)
        try:
            while len(view):
                count = os.pwrite(self._file, view, at)
                view, at = view[count:], at + count
        except OSError as error:
            raise RigError(f"cannot write {self._part}: {error.strerror}") from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                os.fsync(self._file)
                self._part.replace(self._path)
        except OSError as problem:
            raise RigError(f"cannot finish {self._path}: {problem.strerror}") from problem
        finally:
            os.close(self._file)
            self._part.unlink(missing_ok=True)
