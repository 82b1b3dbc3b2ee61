"""
Known causes of stragglers, one file each: a function from the evidence to what was found, or None.

Its decorator registers it; a new file in this package is looked for in every diagnosis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainsim.diagnosis.evidence import Evidence
from trainsim.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCause:
    """A cause that was found. ``saved`` are seconds by which the mean step is shorter without it; ``sentence`` names
    it, ``suggestions`` say what would help."""

    kind: str
    saved: float
    sentence: str
    suggestions: tuple[str, ...] = ()


causes: Registry[Callable[[Evidence], FoundCause | None]] = Registry("cause", "trainsim.diagnosis.causes")
"""All that is looked for, by name."""
