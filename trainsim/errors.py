"""
Every error this package raises on purpose. The message names the user's thing, its value and the way out.

* TrainsimError
  x UnknownName        a model, schedule, topology, key... that nobody knows
  x ScenarioError      a scenario file that cannot be read as one: file, line, key, value
  x InvalidPlan        degrees, batches or layouts that do not divide or do not multiply out
  x InvalidTopology    a machine whose parts do not fit together
  x InvalidProgram     a schedule or pass produced something that the engine must not run
  x NotBuilt           something that the scenario language can say and this version cannot do
  x Deadlock           the simulation stopped with ranks still waiting
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class TrainsimError(Exception):
    """Base class: catch this to catch everything raised here on purpose."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, if any.

    >>> nearest("sqare", ["circle", "square"])
    'square'
    """
    known = list(known)
    close = get_close_matches(name, known, n=1) or get_close_matches(name.lower(), [k.lower() for k in known], n=1)
    return next((k for k in known if close and k.lower() == close[0].lower()), None)


class UnknownName(TrainsimError):
    """Use one of the names that the message lists."""

    def __init__(self, kind: str, name: str, known: Iterable[str]):
        known = sorted(known)
        near = nearest(name, known)
        hint = f" Did you mean {near!r}?" if near else ""
        self.kind = kind
        super().__init__(f"No {kind} is called {name!r}.{hint} Known: {', '.join(known)}.")


class ScenarioError(TrainsimError):
    """Mend the line of the file that the message names."""


class InvalidPlan(TrainsimError):
    """The message says which number to change and to what."""


class InvalidTopology(TrainsimError):
    """The message names the device or the link."""


class InvalidProgram(TrainsimError):
    """The message names the first instruction that breaks the contract."""


class NotBuilt(TrainsimError):
    """What was asked for is a known idea that this version does not simulate; the message says what it does instead."""


class Deadlock(TrainsimError):
    """The message lists each stuck chain and what it waits for."""
