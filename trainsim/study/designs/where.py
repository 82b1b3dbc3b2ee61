"""Conditions on the points of a design: which of them are worth running."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import BaseModel

from trainsim.contracts.job import Job
from trainsim.documents.origin import key_of
from trainsim.errors import ScenarioError, TrainsimError, suggestions
from trainsim.scenario.scenario import Scenario
from trainsim.study.designs.design import Point
from trainsim.study.designs.expression import Expression

Where = str | Callable[[Scenario], Any] | Sequence[str | Callable[[Scenario], Any]]
"""A condition in words, or a function of the changed scenario; several have to hold all."""


MEASURED: Mapping[str, Callable[[Job], Any]] = {
    "cluster.gpus": lambda job: job.parallel.ranks,
    "cluster.gpus_per_node": lambda job: job.cluster.gpus_per_node,
    "cluster.gpu": lambda job: job.cluster.gpu.name,
    "cluster.nic_bandwidth": lambda job: job.cluster.fabric.nic_bandwidth,
    "cluster.nics_per_node": lambda job: job.cluster.nics_per_node,
    "training.microbatches": lambda job: job.training.microbatches,
}
"""What follows from a scenario and need not be written in one; bytes/s."""


class PointValues:
    """The values of a scenario by dotted path: as given, else its default, else derived.

    >>> values = PointValues(Scenario.load("quickstart"))
    >>> values["parallel.tp"], values["parallel.dp"], values["cluster.gpus"], values["model.layers"]
    (2, 2, 8, 32)
    """

    def __init__(self, scenario: Scenario):
        self.scenario = scenario

    def __getitem__(self, path: str) -> Any:
        """Raises KeyError for a path that the scenario does not have, and what resolving raises."""
        try:
            found = None if path in MEASURED else _inside(self.scenario.spec, path)
        except KeyError:
            found = None
        if found is None or isinstance(found, BaseModel):
            derived = self._derived()
            try:
                return derived[path] if path in derived else _inside(self.scenario.resolved, path)
            except KeyError:
                _inside(self.scenario.spec, path)  # a field that nobody has set is one, too
                return None
        return list(found) if isinstance(found, tuple) else found

    def known(self) -> list[str]:
        """Every path that has a value."""
        return sorted({*self._derived(), *_leaves(self.scenario.resolved), *_leaves(self.scenario.spec.model_dump())})

    def _derived(self) -> dict[str, Any]:
        """What follows from a scenario and is not written in one."""
        job = self.scenario.resolve()
        return {path: of(job) for path, of in MEASURED.items()}


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions that were read and whose paths the scenario has."""

    each: tuple[Expression | Callable[[Scenario], Any], ...]

    @classmethod
    def read(cls, where: Where | None, base: Scenario, axes: Iterable[str] = ()) -> Conditions:
        """The conditions that *where* is. Raises ScenarioError for one that cannot be read, or that names a path which
        neither *base* nor *axes* have."""
        several = [] if where is None else [where] if isinstance(where, str) or callable(where) else list(where)
        known = set(axes)
        return cls(tuple(one if callable(one) else _known(Expression.read(one), base, known) for one in several))

    def hold(self, base: Scenario, point: Point) -> bool:
        """Whether all of them hold for *point*. One that cannot be resolved is left to the run, which says why.

        Raises ScenarioError for a condition that cannot be worked out, such as a division by zero.
        """
        if not self.each:
            return True
        try:
            scenario = base.replace(point)
        except TrainsimError:
            return True
        values = _Looked(PointValues(scenario), point)
        try:
            return all(one.value(values) if isinstance(one, Expression) else one(scenario) for one in self.each)
        except _Unresolved:
            return True

    def kept(self, base: Scenario, points: Iterable[Point]) -> Iterator[Point]:
        """Those of *points* for which all conditions hold."""
        return (point for point in points if self.hold(base, point))


class _Unresolved(Exception):
    """The point cannot run, and why is said where it is run."""


@dataclass(frozen=True, slots=True)
class _Looked:
    """What a path means at a point."""

    values: PointValues
    point: Point

    def __call__(self, path: str) -> Any:
        try:
            return self.values[path]
        except KeyError:
            return self.point.get(path)
        except TrainsimError:
            raise _Unresolved from None


def _known(expression: Expression, base: Scenario, axes: set[str]) -> Expression:
    """*expression*, all of whose paths there are."""
    values = PointValues(base)
    for path in expression.paths:
        try:
            _ = path in axes or values[path]
        except KeyError:
            near = " or ".join(map(repr, suggestions(path, values.known()))) or "one such as 'parallel.tp'"
            raise ScenarioError(f"where {expression.text!r}: {path} is not a field; did you mean {near}?") from None
        except TrainsimError:
            continue  # the scenario as it is cannot run; its points may
    return expression


def _inside(whole: Any, path: str) -> Any:
    """The value at *path* of nested mappings, sections and lists. Raises KeyError if there is none."""
    here = whole
    for part in key_of(path):
        if isinstance(here, BaseModel):
            here = dict(here)[str(part)]  # its fields, and what else stands there
        elif isinstance(here, list | tuple):
            here = dict(enumerate(here))[int(part)] if isinstance(part, int) else _none(path)
        elif isinstance(here, Mapping):
            here = here[part]
        else:
            _none(path)
    return here


def _none(path: str) -> NoReturn:
    raise KeyError(path)


def _leaves(whole: Any, before: str = "") -> Iterator[str]:
    for name, value in whole.items():
        path = f"{before}.{name}" if before else str(name)
        if isinstance(value, Mapping):
            yield from _leaves(value, path)
        elif before != "derived":
            yield path
