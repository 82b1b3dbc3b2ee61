"""A file with measurements: its beginning, by which it is recognised, and its text, packed by gzip or not."""

from __future__ import annotations

import stat
import zlib
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

from trainsim.errors import ScenarioError

MOST_BYTES = 1 << 30
"""Of a file, and of what a packed one holds: a trace of a long profile has some hundred megabytes."""
LOOKED_AT = 1 << 16
"""Bytes at the beginning by which a file is recognised."""
GZIP = b"\x1f\x8b"
PIECE = 1 << 20
"""Bytes that are read at once."""


class FileText(NamedTuple):
    """The text of a file; letters that are none are replaced. ``whole``: it does not end early, as far as its packing
    tells."""

    text: str
    whole: bool


@dataclass(frozen=True, slots=True)
class MeasuredFile:
    """A file that can be read; ``start`` are its first bytes, unpacked."""

    path: Path
    start: bytes

    @property
    def shown(self) -> str:
        """What messages call it."""
        return str(self.path)

    def text(self) -> FileText:
        """All of it. Raises ScenarioError for what is too long."""
        raw, whole = _unpacked(self.path, MOST_BYTES)
        return FileText(raw.decode("utf-8-sig", "replace"), whole)


def measured_file(path: str | Path) -> MeasuredFile:
    """The file at *path*. Raises ScenarioError for what is no file, cannot be read, or is empty."""
    start, _ = _unpacked(Path(path), LOOKED_AT, all_of_it=False)
    if not start.strip():
        raise ScenarioError(f"{path}: the file is empty")
    return MeasuredFile(Path(path), start)


def _unpacked(path: Path, most: int, *, all_of_it: bool = True) -> tuple[bytes, bool]:
    """Up to *most* bytes of a file, and whether it ends as it should."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ScenarioError(f"{path}: cannot be read: it is {'a folder' if path.is_dir() else 'no regular file'}")
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
            file.seek(0)
            raw, whole = _unzipped(file, most + 1) if packed else (file.read(most + 1), True)
    except (OSError, ValueError, zlib.error) as fault:
        raise ScenarioError(f"{path}: cannot be read: {getattr(fault, 'strerror', None) or fault}") from None
    if all_of_it and len(raw) > most:
        raise ScenarioError(f"{path}: cannot be read: it is longer than {most} bytes")
    return raw[:most], whole


def _unzipped(file: BinaryIO, most: int) -> tuple[bytes, bool]:
    """Up to *most* bytes of what *file* packs, in one part or several; what a cut or damaged one still holds, and
    whether it was whole."""
    out, parts = BytesIO(), zlib.decompressobj(31)
    for piece in iter(partial(file.read, PIECE), b""):
        rest = piece
        while rest:
            try:
                out.write(parts.decompress(rest, most - out.tell()))
            except zlib.error:
                if not out.tell():
                    raise
                return out.getvalue(), False
            if out.tell() >= most:
                return out.getvalue(), True
            rest = parts.unused_data.lstrip(b"\0") if parts.eof else b""
            if parts.eof and rest:
                parts = zlib.decompressobj(31)
    return out.getvalue(), parts.eof
