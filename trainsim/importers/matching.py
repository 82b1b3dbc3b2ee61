"""
Which entry of a table of keys is about a key of a file, and which one was probably meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from trainsim.importers.importer import Key

ALIKE = 0.84
"""How alike two keys are of which one is probably a slip of the other (of 1)."""


def match(key: str, keys: Iterable[Key]) -> Key | None:
    """The one of *keys* that is about the dotted *key*; one without asterisks before the others.

    >>> from trainsim.importers.importer import Effect
    >>> match("a.b.c", [Key("a.**", Effect.NONE, "why"), Key("a.*.c", Effect.READ, "x")]).words
    'x'
    """
    parts = key.split(".")
    found = [k for k in keys if _fits(k.name.split("."), parts)]
    return min(found, key=lambda k: (k.name.count("*"), -len(k.name)), default=None)


def _fits(pattern: list[str], parts: list[str]) -> bool:
    if pattern[-1] == "**":
        return len(parts) >= len(pattern) - 1 and _fits([*pattern[:-1]] or ["*"], parts[: max(1, len(pattern) - 1)])
    return len(pattern) == len(parts) and all(map(fnmatchcase, parts, pattern))


def meant(key: str, names: Sequence[str]) -> str | None:
    """The known key that was probably meant: spelt alike, or with the same last word in another section.

    >>> meant("zero.stge", ["zero.stage"]), meant("offload", ["zero.offload"]), meant("lr", ["zero.stage"])
    ('zero.stage', 'zero.offload', None)
    """
    last = key.rpartition(".")[2]
    ends = {name.rpartition(".")[2]: name for name in names if name != key}
    alike = get_close_matches(key, [name for name in names if name != key], n=1, cutoff=ALIKE)
    close = alike or [ends[end] for end in get_close_matches(last, ends, n=1, cutoff=ALIKE)]
    return next(iter(close), None)
