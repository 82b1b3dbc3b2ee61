"""What the package's own files say, in a few letters: code and data on which every result depends."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from trainsim.plugins import KINDS, additions, module_sources

PACKAGE = Path(__file__).parents[1]
BESIDE = ("topologies",)
"""Folders of data files that an installed package has inside, and a checkout beside it."""
LEFT_OUT = ("__pycache__", "scenarios")
"""Folders that say nothing of how a scenario is run. What a scenario that ships says is its own content."""
COUNTED = ("trainsim", "numpy", "simpy", "networkx", "pydantic", "PyYAML")
"""Packages whose version is a part of what results depend on."""


class Stamp(NamedTuple):
    """A file: what it is called in its package, where it is now, and how its folder tells that it was changed."""

    title: str
    path: str
    size: int
    changed: int


def code_digest() -> str:
    """SHA-256 of all that a result depends on beside the scenario: versions of Python and of the libraries that
    compute, what is in every file of this package, and in those of packages that add to it. Where the files lie does
    not matter.

    Code counts as it was when this was first asked for, as a process imports it once; data files count as they are now.

    >>> code_digest() == code_digest(), len(code_digest())
    (True, 64)
    """
    return _joined(_versions(), _code(), _digest(tuple(_stamps(code=False))))


@lru_cache(maxsize=1)
def _code() -> str:
    return _digest(tuple(_stamps(code=True)))


@lru_cache(maxsize=2)
def _digest(stamps: tuple[Stamp, ...]) -> str:
    whole = sha256()
    for stamp in stamps:
        whole.update(stamp.title.encode() + b"\0" + sha256(Path(stamp.path).read_bytes()).digest())
    return whole.hexdigest()


@lru_cache(maxsize=1)
def _versions() -> str:
    return _joined(platform.machine(), platform.python_version(), *map(_version, COUNTED))


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


def _joined(*texts: str) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()


def _stamps(*, code: bool) -> list[Stamp]:
    return sorted(stamp for title, place in _places() for stamp in _files(title, str(place), code))


def _places() -> Iterator[tuple[str, Path]]:
    """Folders and files, and what to call each wherever it lies."""
    yield "trainsim", PACKAGE
    yield from ((f"trainsim/{name}", PACKAGE.parent / name) for name in BESIDE if not (PACKAGE / name).is_dir())
    for kind in set(KINDS) - set(LEFT_OUT):
        yield from ((f"{kind} of {package}", folder) for package, folder in additions(kind))
    yield from ((f"modules of {package}", place) for package, place in module_sources())


def _files(title: str, place: str, code: bool) -> Iterable[Stamp]:
    """Those of a folder and of the folders in it: *code*, or else data."""
    entries = os.scandir(place) if os.path.isdir(place) else ()
    for entry in entries:
        if entry.is_dir():
            if entry.name not in LEFT_OUT:
                yield from _files(f"{title}/{entry.name}", entry.path, code)
        elif entry.name.endswith(".py") is code and not entry.name.startswith("."):
            seen = entry.stat()
            yield Stamp(f"{title}/{entry.name}", entry.path, seen.st_size, seen.st_mtime_ns)
    if os.path.isfile(place) and place.endswith(".py") is code:
        seen = os.stat(place)
        yield Stamp(title, place, seen.st_size, seen.st_mtime_ns)
