"""What the steps of resolving share: the scenario, its places in the file, and the notes on what was derived."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from trainsim.errors import InvalidPlan, NotBuilt, ScenarioError, TrainsimError, UnknownName
from trainsim.scenario.checks import Fault
from trainsim.scenario.messages import shorten
from trainsim.scenario.origin import Origin, parts, value_at
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

    def message(self, key: str, text: str) -> str:
        """*text* with the file, the line, the key and its value in front."""
        value = value_at(self.data, parts(key))
        shown = "" if value is None or isinstance(value, Mapping) else f" = {shorten(value)}"
        return f"{self.origin.place(parts(key))}{key}{shown}: {text}"

    def require(self, fault: Fault | None, error: type[TrainsimError] = InvalidPlan) -> None:
        """Raise *fault*, if there is one."""
        if fault:
            raise error(self.message(fault.key, fault.message))

    @contextmanager
    def at(self, key: str) -> Iterator[None]:
        """Errors raised inside name the file, the line and *key*."""
        try:
            yield
        except (UnknownName, ScenarioError) as error:
            raise ScenarioError(self.message(key, str(error))) from None
        except (InvalidPlan, NotBuilt) as error:
            raise type(error)(self.message(key, str(error))) from None
        except TrainsimError as error:
            raise ScenarioError(self.message(key, str(error))) from None


def default(context: Context, key: str, given: Any, framework_value: Any) -> Any:
    """*given*, or what the framework does, with a note under *key*."""
    if given is not None:
        return given
    shown = {True: "true", False: "false"}[framework_value] if isinstance(framework_value, bool) else framework_value
    context.derived(key, shown, f"as {context.spec.framework} does")
    return framework_value
