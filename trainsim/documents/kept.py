"""What was made of files and folders that are often looked at and seldom change: made anew where one has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
SETTLED = 2_000_000_000
"""Nanoseconds after its last change from which on a file that changes again is sure to show another time: the clocks
of file systems are coarse, and those of other machines differ."""
MOST = 1024  # things to remember


class KeptReading(Generic[T]):
    """What came of looking at files or folders, of each as long as its status stays the same.

    One that changed a moment ago is looked at each time, since a second change may leave the status as it is.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], T]] = {}

    def of(self, path: Path, look: Callable[[], T]) -> T:
        """What *look* makes of the file or the folder at *path*. Raises OSError if there is none."""
        name, status = os.fspath(path), os.stat(path)
        mark = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev)
        known = self._known.get(name)
        if known is not None and known[0] == mark:
            return known[1]
        value = look()
        if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > SETTLED:
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[name] = (mark, value)
        return value
