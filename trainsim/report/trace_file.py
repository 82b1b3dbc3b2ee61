"""Text written to a file as it is made, packed beside the making."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path


def write(parts: Iterable[str], path: Path) -> Path:
    """Write *parts* to *path*; gzipped if the name ends in ``.gz``, quickly, and the same bytes every time."""
    some = _batches(parts)
    if path.suffix != ".gz":
        path.write_bytes(b"".join(some))
        return path
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)  # 31: with the header of gzip, which then holds no time

    def pack(part: bytes) -> None:
        file.write(packer.compress(part))

    with path.open("wb") as file, ThreadPoolExecutor(1) as beside:
        jobs = [beside.submit(pack, part) for part in some]
        for job in jobs:
            job.result()
        file.write(packer.flush())
    return path


def _batches(parts: Iterable[str], characters: int = 1 << 20) -> Iterator[bytes]:
    """*parts* joined until they are worth handing over."""
    held: list[str] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size > characters:
            yield "".join(held).encode()
            held, size = [], 0
    yield "".join(held).encode()


@lru_cache(maxsize=4096)
def quoted(word: str) -> str:
    """*word* in JSON, with room for it in a text that is filled in.

    >>> quoted("50% done")
    '"50%% done"'
    """
    return json.dumps(word, ensure_ascii=False).replace("%", "%%")
