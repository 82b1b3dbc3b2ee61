"""
Files that are recognised and not read: what they are, and what reads them instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainsim.documents.document import Loader

LOOKED_AT = 4096
"""Characters at the beginning that are looked at."""
COMMENT = re.compile(r"<!--.*?-->|<\?.*?\?>", re.DOTALL)
REMARKS = re.compile(r"\A(\s*#[^\n]*\n)+")


@dataclass(frozen=True, slots=True)
class ForeignKind:
    """A kind of file: ``what`` it is, ``where`` to go with it, and patterns of its name or of its text."""

    what: str
    where: str
    name: re.Pattern[str] | None
    text: re.Pattern[str] | None

    def __str__(self) -> str:
        return f"not a description of a job but {self.what}; {self.where}"


def kind_of(name: str, text: str | None = None) -> ForeignKind | None:
    """The kind of file that is called *name* and begins with *text*, if it is one that is not read.

    >>> print(kind_of("x.xml", "<!-- made by hand -->\\n<algo name='ring'>"))  # doctest: +ELLIPSIS
    not a description of a job but a collective algorithm of MSCCL; nothing reads it yet...
    >>> kind_of("config.json", "{}") is None
    True
    """
    start = COMMENT.sub("", (text or "")[:LOOKED_AT].lstrip("\ufeff")).lstrip()
    below = REMARKS.sub("", start).lstrip()
    for kind in kinds():
        if kind.name and kind.name.search(name.lower()):
            return kind
        if text is not None and kind.text and any(map(kind.text.search, (start, below))):
            return kind
    return None


@cache
def kinds() -> tuple[ForeignKind, ...]:
    """All of them, in the order in which they are tried."""
    import yaml

    entries = yaml.load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"), Loader)
    return tuple(ForeignKind(e["what"], e["where"], _pattern(e.get("name")), _pattern(e.get("text"))) for e in entries)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    return re.compile(text) if text else None
