"""What the steps of resolving share: the scenario, its places in the file, and the notes on what was derived."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from pydantic import BaseModel

from trainsim.documents.origin import Origin, key_of, value_at
from trainsim.errors import InvalidPlan, NotBuilt, ScenarioError, TrainsimError, shorten
from trainsim.scenario.checks import Fault
from trainsim.scenario.schema import ScenarioSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A scenario that is being resolved. ``notes`` says, by key, what a derived value was derived from."""

    spec: ScenarioSpec
    data: Mapping[str, Any]
    origin: Origin
    notes: dict[str, str] = field(default_factory=dict)

    def derived(self, key: str, value: object, reason: str) -> None:
        """Remember that *value* of *key* (dotted) follows from *reason*."""
        self.notes[key] = f"{value}  ({reason})"

    def shown(self, key: str) -> str:
        """The file, the line, the key and its value, to put before a message."""
        said = self.origin.said(key_of(key))
        return f"{self.origin.place(key_of(key))}{f'{said}: ' if said else ''}{self._written(key)}"

    def _written(self, key: str) -> str:
        value = value_at(self.data, key_of(key))
        return key if value is None or isinstance(value, Mapping) else f"{key} = {shorten(value)}"

    def message(self, key: str, text: str) -> str:
        """*text* with the file, the line, the key and its value in front."""
        return f"{self.shown(key)}: {text}"

    def placed(self, key: str, text: str, *places: str) -> str:
        """*text*, which may begin with a place in this scenario already: one of *places*, or one inside of *key*."""
        own = (f"{self.origin.file}:",) if self.origin.file else (f"{key}:", f"{key}.")
        return text if text.startswith((*own, *places)) else self.message(key, text)

    def error(self, key: str, text: str, kind: type[TrainsimError]) -> TrainsimError:
        """An error of *kind* about the value of *key*."""
        return kind(self.message(key, text), reason=f"{self._written(key)}: {text}")

    def require(self, fault: Fault | None, error: type[TrainsimError] = InvalidPlan) -> None:
        """Raise *fault*, if there is one."""
        if fault:
            raise self.error(fault.key, fault.message, error)

    @contextmanager
    def at(self, key: str) -> Iterator[None]:
        """Errors raised inside name the file, the line and *key*."""
        try:
            yield
        except TrainsimError as error:
            kind = type(error) if isinstance(error, InvalidPlan | NotBuilt) else ScenarioError
            message = self.placed(key, str(error))
            placed_before = message == str(error)
            raise kind(
                message, reason=error.reason if placed_before else f"{self._written(key)}: {error.reason}"
            ) from None


def carried(section: BaseModel, kind: type) -> dict[str, Any]:
    """The values of a section of the scenario that a part of the job has under the same name."""
    return {f.name: getattr(section, f.name) for f in fields(kind) if f.name in type(section).model_fields}


def called(spec: object) -> str:
    """What a field that names something by a name, a path or a mapping is called."""
    if isinstance(spec, Mapping):
        return str(spec.get("name") or f"{spec.get('base', 'own')}, changed,")
    return str(spec)


def default(context: Context, key: str, given: Any, framework_value: Any) -> Any:
    """*given*, or what the framework does, with a note under *key*."""
    if given is not None:
        return given
    shown = {True: "true", False: "false"}[framework_value] if isinstance(framework_value, bool) else framework_value
    context.derived(key, shown, f"as {called(context.spec.framework)} does")
    return framework_value
