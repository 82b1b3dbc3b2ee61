"""
Every error this package raises on purpose. The message names the user's thing, its value and the way out.

* TrainsimError
  x UnknownName        a model, schedule, topology, key... that nobody knows
  x ScenarioError      a scenario file that cannot be read as one: file, line, key, value
  x InvalidData        a file of a GPU, model, framework... that cannot be read as one: file, line, key, value
  x InvalidPlan        degrees, batches or layouts that do not divide or do not multiply out
  x InvalidTopology    a machine whose parts do not fit together
  x InvalidProgram     a schedule or pass produced something that the engine must not run
  x NotBuilt           something that the scenario language can say and this version cannot do
  x Deadlock           the simulation stopped with ranks still waiting
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

MOST_SUGGESTED = 3
LONGEST_VALUE = 60


class TrainsimError(Exception):
    """Base class: catch this to catch everything raised here on purpose.

    ``reason`` is the message for a line of a table: without the place in a file, and without lists that follow it.
    """

    def __init__(self, message: str, *, reason: str = ""):
        super().__init__(message)
        self.reason = reason or message


def shorten(value: object) -> str:
    """*value* as it would stand in the file, at most 60 characters.

    >>> shorten(True), shorten(None), shorten("a")
    ('true', 'null', "'a'")
    """
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int) and abs(value) > 10**LONGEST_VALUE:
        return f"a whole number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def suggestions(name: str, known: Iterable[str]) -> list[str]:
    """The known names that were probably meant, the likeliest first, at most three.

    Names with the same words as *name* come first, then those with all its words and few others (of those that differ
    in a size the larger), then the one with the fewest different letters, then those that contain it.

    >>> suggestions("h100", ["gb200", "h100-pcie-80gb", "h100-sxm5-80gb", "h20-sxm-96gb"])
    ['h100-sxm5-80gb', 'h100-pcie-80gb']
    >>> suggestions("sqare", ["circle", "square"])
    ['square']
    """
    spelled = {known_name.casefold(): known_name for known_name in known}
    wanted = name.casefold()
    if wanted in spelled:
        return [spelled[wanted]]
    words = {n: _words(n) for n in spelled}
    meant = _words(wanted)
    same = [n for n in spelled if meant and meant == words[n]]
    more = [n for n in sorted(spelled, reverse=True) if meant and meant < words[n]]
    close = get_close_matches(wanted, spelled, n=1)
    containing = [n for n in sorted(spelled, reverse=True) if len(wanted) > 1 and wanted in n]
    best = same or sorted(more, key=lambda n: len(words[n])) or close or containing
    return [spelled[n] for n in best[:MOST_SUGGESTED]]


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z0-9.]+", name)) - {""}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, if any.

    >>> nearest("sqare", ["circle", "square"])
    'square'
    """
    return next(iter(suggestions(name, known)), None)


class UnknownName(TrainsimError):
    """Use one of the names that the message lists."""

    def __init__(self, kind: str, name: str, known: Iterable[str]):
        known = sorted(known)
        near = " or ".join(map(repr, suggestions(str(name), known)))
        hint = f" Did you mean {near}?" if near else ""
        self.kind = kind
        super().__init__(f"No {kind} is called {name!r}.{hint} Known: {', '.join(known)}.")


class ScenarioError(TrainsimError):
    """Mend the line of the file that the message names."""


class InvalidData(TrainsimError):
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
    """The message lists each stuck chain and what it waits for: ``waiting``, a line each."""

    def __init__(self, message: str, waiting: Sequence[str] = ()):
        self.waiting = tuple(waiting)
        super().__init__("\n".join([message, *waiting]), reason=message.rstrip(":"))
