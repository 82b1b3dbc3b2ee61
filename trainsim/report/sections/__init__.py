"""
The sections of a report, one file each: what ``trainsim run`` prints, ``report.html`` and a notebook's card show.

A section is a function from a result to a `Section`, or None if this run has nothing to say under that heading. Its
decorator says where it stands and who shows it; a new file in this package is a new section everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from trainsim.registry import Registry
from trainsim.tables.blocks import Section

if TYPE_CHECKING:
    from trainsim.result.result import Result

    Build = Callable[[Result], Section | None]

TERMINAL, PAGE, CARD = "terminal", "page", "card"


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A section of a report: its place among the others, and who shows it."""

    build: Build
    place: int
    shown_by: frozenset[str]


sections: Registry[ReportSection] = Registry("section", "trainsim.report.sections")


def section(name: str, *, place: int, shown_by: tuple[str, ...]) -> Callable[[Build], Build]:
    """Register the decorated function as a section; sections stand in the order of *place*."""

    def add(build: Build) -> Build:
        sections.register(name)(ReportSection(build, place, frozenset(shown_by)))
        return build

    return add


def report(result: Result, reader: str, made: Mapping[str, Section] = MappingProxyType({})) -> list[Section]:
    """All sections that *reader* (TERMINAL, PAGE or CARD) shows of a result, in their order; *made* has those that are
    there already, by name."""
    known = sorted((listed.place, name, listed) for name, listed in sections.items() if reader in listed.shown_by)
    built = (made[name] if name in made else listed.build(result) for _, name, listed in known)
    return [listed for listed in built if listed is not None]
