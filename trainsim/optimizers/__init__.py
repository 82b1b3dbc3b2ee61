"""
Optimizers: one file of data each, with what it keeps and moves per parameter and what it computes besides.

Everything is beside the weights and their fp32 master copy, which belong to the framework.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import yaml

from trainsim.errors import UnknownName
from trainsim.models.matrices import Matrix, Tensors


class Rule(NamedTuple):
    """What an optimizer does with one kind of tensor, in bytes: ``states`` per parameter and ``lines`` per row and per
    column are kept, ``moved`` per parameter goes through memory in a step (master copy, states, gradient, weight)."""

    states: float
    moved: float
    lines: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Rules for matrices of the layers, for tables (embeddings, head) and for vectors (norms, biases).

    ``iterations`` is the number of Newton-Schulz steps on each whole matrix, which has to be gathered first with
    ``gather_bytes`` per parameter if its state is cut. ``foreach_bytes`` are temporary, per parameter, where the step
    runs as one kernel per operation over all tensors.
    """

    name: str
    source: str
    matrices: Rule
    tables: Rule
    vectors: Rule
    iterations: int = 0
    gather_bytes: float = 0.0
    foreach_bytes: float = 0.0

    def state_bytes(self, held: Tensors) -> float:
        """Bytes of the states of the tensors *held*.

        >>> load_optimizer("adafactor").state_bytes(Tensors((Matrix(100, 50, 2),), (), 0))
        1200.0
        """
        return (
            sum(self.matrices.states * m.elements + self.matrices.lines * _lines(m) for m in held.matrices)
            + sum(self.tables.states * m.elements + self.tables.lines * _lines(m) for m in held.tables)
            + self.vectors.states * held.vectors
        )

    def moved_bytes(self, held: Tensors) -> float:
        """Bytes that a step over the tensors *held* moves."""
        return (
            self.matrices.moved * _elements(held.matrices)
            + self.tables.moved * _elements(held.tables)
            + self.vectors.moved * held.vectors
        )

    def traffic(self, held: Tensors) -> float:
        """Memory traffic of a step over *held*, relative to Adam's.

        >>> some = Tensors((Matrix(100, 50, 2),), (), 10)
        >>> load_optimizer("adamw").traffic(some), load_optimizer("sgd").traffic(some) < 0.5
        (1.0, True)
        """
        return self.moved_bytes(held) / load_optimizer("adam").moved_bytes(held) if held.total else 1.0


def _elements(matrices: Iterable[Matrix]) -> int:
    return sum(m.elements for m in matrices)


def _lines(m: Matrix) -> int:
    return (m.rows + m.columns) * m.copies


@cache
def load_optimizer(name: str) -> Optimizer:
    """The optimizer called *name*, from ``trainsim/optimizers/<name>.yaml``.

    A file may name a ``base`` and say only what differs; tables and vectors follow the rule of matrices where they have
    none. Raises UnknownName.

    >>> load_optimizer("adam").matrices.states
    8.0
    """
    data = _read(name)
    matrices = data.pop("matrices")
    rules = {kind: data.pop(kind, matrices) for kind in ("tables", "vectors")}
    return Optimizer(
        name=name,
        source=" ".join(data["source"].split()),
        matrices=_rule(matrices),
        tables=_rule(rules["tables"]),
        vectors=_rule(rules["vectors"]),
        iterations=data.get("iterations", 0),
        gather_bytes=float(data.get("gather_bytes", 0)),
        foreach_bytes=float(data.get("foreach_bytes", 0)),
    )


def _rule(data: dict[str, Any]) -> Rule:
    return Rule(**{key: float(value) for key, value in data.items()})


@cache
def optimizer_names() -> tuple[str, ...]:
    """All optimizers that ship with the package."""
    return tuple(sorted(p.name.removesuffix(".yaml") for p in files(__package__).iterdir() if p.name.endswith(".yaml")))


def _read(name: str) -> dict[str, Any]:
    if name not in optimizer_names():
        raise UnknownName("optimizer", name, optimizer_names())
    data: dict[str, Any] = yaml.safe_load((files(__package__) / f"{name}.yaml").read_text())
    base = data.pop("base", None)
    return _read(base) | data if base else data
