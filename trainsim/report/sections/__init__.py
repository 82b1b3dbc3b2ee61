"""
The sections of a report, one file each: what ``trainsim run`` prints, ``report.html`` and a notebook's card show.

A section is a function from a result to a `Section`, or None if this run has nothing to say under that heading. Its
decorator says where it stands, who shows it, and what the result has to be: a section that ``needs`` no more than a
`StepAnalysis` is there for measured steps too. A new file in this package is a new section everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from trainsim.analysis.step_analysis import StepAnalysis
from trainsim.registry import Registry
from trainsim.tables.blocks import Section

A = TypeVar("A", bound=StepAnalysis)

TERMINAL, PAGE, CARD = "terminal", "page", "card"


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A section of a report: its place among the others, who shows it, and the analysis that it is made from."""

    build: Callable[[Any], Section | None]
    place: int
    shown_by: frozenset[str]
    needs: type[StepAnalysis]


sections: Registry[ReportSection] = Registry("section", "trainsim.report.sections")


def section(
    name: str, *, place: int, shown_by: tuple[str, ...], needs: type[A]
) -> Callable[[Callable[[A], Section | None]], Callable[[A], Section | None]]:
    """Register the decorated function as a section; sections stand in the order of *place*."""

    def add(build: Callable[[A], Section | None]) -> Callable[[A], Section | None]:
        sections.register(name)(ReportSection(build, place, frozenset(shown_by), needs))
        return build

    return add


def report(result: StepAnalysis, reader: str, made: Mapping[str, Section] = MappingProxyType({})) -> list[Section]:
    """All sections that *reader* (TERMINAL, PAGE or CARD) shows of a result and that can be made from it, in their
    order; *made* has those that are there already, by name."""
    known = [(listed.place, name) for name, listed in sections.items() if reader in listed.shown_by]
    able = [name for _, name in sorted(known) if isinstance(result, sections[name].needs)]
    built = (made[name] if name in made else sections[name].build(result) for name in able)
    return [listed for listed in built if listed is not None]
