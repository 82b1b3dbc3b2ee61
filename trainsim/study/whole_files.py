"""Files that are there as a whole or not at all, whatever ends the process that writes them."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

UNFINISHED = ".writing-"
"""How the names of files begin that are being written."""
ABANDONED = 3600.0
"""Seconds after which nobody is writing a file any more."""


def put(content: bytes, file: Path) -> None:
    """Make *file* have *content*, on the disk when this returns; a file of that name is replaced in one step.

    Raises OSError, and leaves nothing, where that cannot be done.
    """
    part = file.with_name(f"{UNFINISHED}{uuid4().hex}")
    try:
        with part.open("xb") as writing:
            writing.write(content)
            writing.flush()
            os.fsync(writing.fileno())
        os.replace(part, file)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    _sync_folder(file.parent)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # of systems on which folders cannot be opened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_abandoned(folder: Path) -> None:
    """Remove what killed processes have begun to write in *folder*."""
    for part in folder.glob(f"{UNFINISHED}*"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > ABANDONED:
                part.unlink()
