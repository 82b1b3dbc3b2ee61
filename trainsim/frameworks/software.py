"""
The profile that stands for a software, by the name that people give it: an ordered table, ``choice/software.yaml``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from trainsim.documents.building import build
from trainsim.documents.catalogue import PACKAGE
from trainsim.documents.document import read_file
from trainsim.documents.part import DocumentPart

FILE = PACKAGE / "frameworks" / "choice" / "software.yaml"
KEYS = ("description", "source", "rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """A row of the table: how a software is called, in which years and how sharded, and the profile that stands for it.

    ``own``: the profile was written for it; else it stands in, and ``assumed`` says what that takes for granted.
    """

    software: str
    named: str  # a regular expression, looked for without regard to case
    profile: str
    since: int = 0  # years, inclusive
    until: int = 9999
    sharding: tuple[str, ...] = ()
    own: bool = False
    assumed: str = ""

    def stands_for(self, software: str, year: int | None, sharding: str | None) -> bool:
        """Whether the row holds; without a *year* the software is today's."""
        if not self.since <= (9999 if year is None else min(year, 9999)) <= self.until:
            return False
        if self.sharding and sharding not in self.sharding:
            return False
        return re.search(self.named, software, re.IGNORECASE) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A profile, why it was chosen, and what that assumes, if anything; ``known``: it is the software's own."""

    profile: str
    why: str
    assumed: str
    known: bool


@lru_cache(maxsize=1)
def softwares() -> tuple[Software, ...]:
    """The rows of the table in their order, of which the last one holds for every software.

    >>> softwares()[-1].profile
    'neutral-eager'
    """
    document = read_file(FILE, shown="frameworks/choice/software.yaml")
    top = DocumentPart.open(document, (), document.data, KEYS)
    return tuple(
        build(Software, DocumentPart.open(document, ("rows", number), row, Software.__annotations__))
        for number, row in enumerate(top.data["rows"])
    )


def profile_for(software: str, *, year: int | None = None, sharding: str | None = None) -> Chosen:
    """The profile for a *software* as people name it, of a *year*, with a *sharding* strategy; None where not known.

    Software that nobody described is taken for eager PyTorch, since most of it turned out to be.

    >>> profile_for("Megatron-LM", year=2021).profile
    'megatron-2021'
    >>> profile_for("Hugging Face Trainer", year=2023, sharding="zero2").profile
    'transformers-deepspeed'
    >>> profile_for("our own trainer")
    Chosen(profile='neutral-eager', why="no profile knows 'our own trainer'", \
assumed='eager PyTorch with FlashAttention-2, nothing else fused or compiled', known=False)
    """
    row = next(row for row in softwares() if row.stands_for(software, year, sharding))
    if row is softwares()[-1]:
        why = f"no profile knows {software!r}"
    else:
        why = f"{software!r} is {row.software}" if row.own else f"{software!r} is {row.software}, which has none"
    return Chosen(profile=row.profile, why=why, assumed=row.assumed, known=row.own)
