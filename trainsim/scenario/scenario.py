"""The scenario: a frozen value that a person writes, changes, compares and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from trainsim.contracts.job import Job
from trainsim.documents.origin import Origin, key_of
from trainsim.errors import ScenarioError
from trainsim.scenario.changes import changed
from trainsim.scenario.context import Context
from trainsim.scenario.loading import read_scenario
from trainsim.scenario.named import content
from trainsim.scenario.resolve import Resolved, resolve
from trainsim.scenario.schema import ScenarioSpec
from trainsim.scenario.schema_errors import check_schema

if TYPE_CHECKING:
    from trainsim.result.result import Result


@dataclass(frozen=True, eq=False, repr=False)
class Scenario:
    """What to simulate. Two scenarios are equal if they mean the same, whatever files and units they were written in.

    >>> base = Scenario.from_dict({"model": "gpt2-xl", "cluster": {"topology": "dgx1_v100", "nodes": 1}})
    >>> base.replace({"parallel.tp": 5}).spec.parallel.tp
    5
    """

    data: Mapping[str, Any]
    origin: Origin = field(default_factory=Origin)

    def __post_init__(self) -> None:
        _ = self.spec

    @classmethod
    def load(cls, name_or_path: str | Path) -> Scenario:
        """The scenario in a YAML file, or one that ships with the package, by name.

        Raises ScenarioError that names the file, the line and the key.
        """
        document = read_scenario(name_or_path)
        return cls(document.data, document.origin)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Scenario:
        """The scenario with the values of a nested mapping. Raises ScenarioError that names the key."""
        if not isinstance(data, Mapping):
            raise ScenarioError(f"a scenario is a mapping, not {type(data).__name__}")
        return cls(deepcopy(dict(read_scenario(data).data if "base" in data else data)))

    def replace(self, changes: Mapping[str, Any]) -> Scenario:
        """A new scenario with other values at dotted paths such as ``parallel.tp``; this one stays as it is."""
        return Scenario(changed(self.data, changes, origin=self.origin), self.origin.without(map(key_of, changes)))

    @cached_property
    def spec(self) -> ScenarioSpec:
        """The checked values, defaults included; what is derived is None."""
        return check_schema(self.data, self.origin)

    @property
    def _resolved(self) -> Resolved:
        """Worked out once, and again where a file that the scenario names has changed since."""
        before = self.__dict__.get("_kept")
        if before is None or before[0] != self._canonical:
            resolved = resolve(Context(spec=self.spec, data=self.data, origin=self.origin))
            before = self.__dict__["_kept"] = (self._canonical, resolved)
        kept: Resolved = before[1]
        return kept

    @property
    def said(self) -> str:
        """The ``content`` of the scenario and of its files when it was last worked out."""
        kept = self.__dict__.get("_kept")
        return str(kept[0]) if kept else self._canonical

    @property
    def resolved(self) -> dict[str, Any]:
        """Every value written out; ``derived`` says what was derived and from what. It reads back as a scenario."""
        return deepcopy(dict(self._resolved.values))

    @property
    def name(self) -> str:
        """The free text that the scenario is called, else its file's or its model's name."""
        model = self.spec.model if isinstance(self.spec.model, str) else self.spec.model.name
        return self.spec.name or Path(self.origin.file).stem or model

    def resolve(self) -> Job:
        """Everything that planning needs, nothing left to derive.

        Raises ScenarioError, InvalidPlan or NotBuilt, each with the way out.
        """
        return self._resolved.job

    def run(self, phase: Callable[[str], None] = lambda name: None) -> Result:
        """Simulate one step; *phase* is told what is being done. Raises what ``resolve`` raises."""
        from trainsim.analysis.paged import simulate_paged
        from trainsim.result.result import Result

        resolved = self._resolved
        return Result(simulation=simulate_paged(resolved.job, phase), scenario=deepcopy(dict(resolved.values)))

    def to_dict(self) -> dict[str, Any]:
        """The values as they were given; ``from_dict`` reads them back."""
        return deepcopy(dict(self.data))

    def to_yaml(self) -> str:
        """A scenario file with the values as they were given."""
        return str(yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True))

    @property
    def _canonical(self) -> str:
        return content(self.spec, self.origin)

    def __eq__(self, other: object) -> bool:
        return self._canonical == other._canonical if isinstance(other, Scenario) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._canonical)

    def __repr__(self) -> str:
        return f"<Scenario {self.name!r}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre style='font-family:monospace'>{escape(self.to_yaml())}</pre>"
