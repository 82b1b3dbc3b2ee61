"""
An exporter: a scenario in the words of another tool, and what became of each of its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainsim.documents.origin import key_of, value_at
from trainsim.importers.findings import flattened
from trainsim.registry import Registry
from trainsim.scenario.changes import is_within

if TYPE_CHECKING:
    from trainsim.scenario.scenario import Scenario

MISSING: Any = object()
SIMULATED = "how it is simulated, or what goes wrong in it: a trainer knows nothing of that"
MACHINE = "the machine: whoever starts the job says that"
NEVER = {"name": "a name", "what_if": SIMULATED, "simulation": SIMULATED, "network": SIMULATED, "cluster": MACHINE}
"""Sections that no trainer's file has."""


@dataclass(frozen=True, slots=True)
class Told:
    """A key of the scenario, and the key of the file that it became, or why there is none."""

    key: str
    words: str

    def to_dict(self) -> dict[str, str]:
        """As a mapping, for JSON."""
        return {"key": self.key, "words": self.words}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A scenario as the ``text`` of a file; ``written`` and ``left_out`` are what became of its keys."""

    exporter: str
    text: str
    written: tuple[Told, ...]
    left_out: tuple[Told, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        told = {kind: [one.to_dict() for one in getattr(self, kind)] for kind in ("written", "left_out")}
        return {"exporter": self.exporter, "text": self.text, **told}


class Writer:
    """A resolved scenario read key by key on its way into a file: what was given and nobody wrote is told.

    ``lines`` are the keys of the file and their values, in the order in which they were written.
    """

    def __init__(self, scenario: Scenario):
        self.scenario = scenario
        self.lines: dict[str, Any] = {}
        self._values = scenario.resolved
        self._written: dict[str, str] = {}
        self._left_out: dict[str, str] = {}

    def value(self, key: str, default: Any = None) -> Any:
        """The value at *key* of the resolved scenario."""
        value = value_at(self._values, key_of(key))
        return default if value is None else value

    def given(self, key: str) -> Any:
        """The value at *key* of the scenario as it was written; None where nothing was."""
        return value_at(self.scenario.data, key_of(key))

    def write(self, name: str, value: Any, *keys: str) -> None:
        """The file has *value* at *name*, because of the scenario's *keys*."""
        self.lines[name] = value
        self.say(*keys, words=name)

    def say(self, *keys: str, words: str) -> None:
        """What the scenario's *keys* became."""
        for key in keys:
            self._written.setdefault(key, words)

    def leave(self, key: str, why: str) -> None:
        """The scenario's *key* has no place in the file."""
        self._left_out.setdefault(key, why)

    def exported(self, exporter: str, text: str, missing: str) -> Exported:
        """The file as *text*; *missing* says of keys that nobody spoke of why they have no place in it."""
        for key, value in self._given():
            section = next((s for s in NEVER if is_within(key, s)), "")
            if self._is_told(key):
                continue
            if not section and value == self._usual(key):
                self._written[key] = "nothing: it is the usual value"
            else:
                self._left_out[key] = NEVER[section] if section else missing
        return Exported(
            exporter=exporter,
            text=text,
            written=_sorted(self._written),
            left_out=_sorted(self._left_out),
        )

    def _given(self) -> Iterable[tuple[str, Any]]:
        """The leaves of the scenario as it was written."""
        for key, value in self.scenario.to_dict().items():
            if key not in ("derived", "base"):
                yield from flattened(key, value)

    def _usual(self, key: str) -> Any:
        """What the scenario's *key* is where nobody says anything; MISSING if there is no such value."""
        section, _, name = key.partition(".")
        fields = type(getattr(self.scenario.spec, section, None)).__dict__.get("__pydantic_fields__", {})
        return fields[name].default if name in fields else MISSING

    def _is_told(self, key: str) -> bool:
        told = [*self._written, *self._left_out]
        return any(is_within(key, other) or is_within(other, key) for other in told)


def _sorted(told: Mapping[str, str]) -> tuple[Told, ...]:
    return tuple(Told(key, words) for key, words in told.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """One format: what it is called, what its files are named, and how a scenario becomes one."""

    name: str
    title: str
    about: str
    suffix: str
    export: Callable[[Scenario], Exported]


exporters: Registry[Exporter] = Registry("exporter", "trainsim.exporters.formats")
"""The formats that are known, by name."""


def register(exporter: Exporter) -> Exporter:
    """Add *exporter* to the registry."""
    return exporters.register(exporter.name)(exporter)


def export(scenario: Scenario, kind: str) -> Exported:
    """*scenario* as a file of *kind*. Raises UnknownName for a kind that nobody knows, and what resolving raises.

    >>> from trainsim.scenario.scenario import Scenario
    >>> base = Scenario.from_dict({"model": "llama-3-8b", "cluster": {"topology": "dgx_h100", "nodes": 2}})
    >>> [told.key for told in export(base.replace({"sharding.strategy": "fsdp"}), "torchtitan").left_out]
    ['framework', 'cluster.topology', 'cluster.nodes']
    """
    return exporters[kind].export(scenario)
