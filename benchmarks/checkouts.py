"""Older states of the program, to measure them beside this one."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

HERE = Path(__file__).parents[1]
"""This state."""
BEFORE = "787f055"
"""The commit before the program was made quicker, to which pages compare."""


def checkout(state: str, folder: Path) -> Path:
    """A folder with the program in *state*: a folder that is one already, or a commit, which is unpacked in *folder*.

    Raises RuntimeError for a commit that this repository does not have.
    """
    if Path(state).is_dir():
        return Path(state).resolve()
    packed = subprocess.run(["git", "-C", str(HERE), "archive", state], capture_output=True, check=False)
    if packed.returncode:
        raise RuntimeError(f"{state}: no folder and no commit of {HERE}: {packed.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder
