"""
Optimizers: one file of data each, with what it keeps and moves per parameter and what it computes besides.

Everything is beside the weights and their fp32 master copy, which belong to the framework.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from trainsim.documents.building import build, keys_of, part
from trainsim.documents.catalogue import COMMON, Catalogue, Spec, folder_in
from trainsim.documents.document import Document
from trainsim.documents.origin import Origin
from trainsim.documents.part import DocumentPart
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

    ``own_types``: states have types of their own, whatever the weights are in; else they are made like their parameters
    and are smaller where 16-bit weights have no master copy. ``paged``: they lie in memory that moves between GPU and
    host. ``iterations`` is the number of Newton-Schulz steps on each whole matrix, which has to be gathered first with
    ``gather_bytes`` per parameter if its state is cut.
    ``foreach_bytes`` are temporary, per parameter, where the step runs as one kernel per operation over all tensors.
    """

    name: str
    source: str
    matrices: Rule  # of the layers
    tables: Rule  # embeddings and head; left out: as matrices
    vectors: Rule  # norms and biases; left out: as matrices
    own_types: bool = False
    paged: bool = False
    iterations: int = 0
    gather_bytes: float = 0.0
    foreach_bytes: float = 0.0

    def state_bytes(self, held: Tensors, *, like: float = 1.0) -> float:
        """Bytes of the states of the tensors *held*, where numbers made like parameters are *like* times as long as in
        fp32.

        >>> load_optimizer("adafactor").state_bytes(Tensors((Matrix(100, 50, 2),), (), 0))
        1200.0
        >>> one = Tensors((Matrix(16, 16, 1),), (), 0)
        >>> [load_optimizer(name).state_bytes(one, like=0.5) / one.total for name in ("adam", "adam8bit")]
        [4.0, 2.03125]
        """
        return (1.0 if self.own_types else like) * (
            sum(self.matrices.states * m.elements + self.matrices.lines * _lines(m) for m in held.matrices)
            + sum(self.tables.states * m.elements + self.tables.lines * _lines(m) for m in held.tables)
            + self.vectors.states * held.vectors
        )

    def moved_bytes(self, held: Tensors, *, like: float = 1.0) -> float:
        """Bytes that a step over the tensors *held* moves, over *like*: states of types of their own are read and
        written in full where all else is shorter."""
        own = 2.0 * (1.0 / like - 1.0) if self.own_types else 0.0
        return (
            (self.matrices.moved + own * self.matrices.states) * _elements(held.matrices)
            + (self.tables.moved + own * self.tables.states) * _elements(held.tables)
            + (self.vectors.moved + own * self.vectors.states) * held.vectors
        )

    def traffic(self, held: Tensors, *, like: float = 1.0) -> float:
        """Memory traffic of a step over *held*, relative to Adam's, whose states are made like its parameters.

        >>> some = Tensors((Matrix(100, 50, 2),), (), 10)
        >>> load_optimizer("adamw").traffic(some), load_optimizer("sgd").traffic(some) < 0.5
        (1.0, True)
        """
        return self.moved_bytes(held, like=like) / yardstick().moved_bytes(held) if held.total else 1.0


def _elements(matrices: Iterable[Matrix]) -> int:
    return sum(m.elements for m in matrices)


def _lines(m: Matrix) -> int:
    return (m.rows + m.columns) * m.copies


OPTIMIZERS = Catalogue(
    kind="optimizer", plural="optimizers", folders=folder_in("optimizers"), key="optimizers", depth=0
)


def load_optimizer(optimizer: Spec, *, origin: Origin | None = None) -> Optimizer:
    """The optimizer that *optimizer* means: a name of ``trainsim/optimizers/``, a path, or a mapping with a ``base``.

    Tables and vectors follow the rule of matrices where they have none. Raises UnknownName, and InvalidData that names
    the file, the line and the key.

    >>> load_optimizer("adam").matrices.states
    8.0
    >>> load_optimizer({"base": "adam", "matrices": {"states": 4, "moved": 22}}).matrices.states
    4.0
    """
    return _optimizer(OPTIMIZERS.find(optimizer, origin=origin))


@lru_cache(maxsize=64)
def _optimizer(document: Document) -> Optimizer:
    section = DocumentPart.open(document, (), document.data, dict.fromkeys([*keys_of(Optimizer), *COMMON]))
    matrices = part(Rule, section, "matrices")
    return build(
        Optimizer,
        section,
        name=document.name,
        source=section.text("source", ""),
        matrices=matrices,
        tables=part(Rule, section, "tables", matrices),
        vectors=part(Rule, section, "vectors", matrices),
    )


@lru_cache(maxsize=1)
def yardstick() -> Optimizer:
    """What others are compared with: a constant, as the package ships it."""
    return load_optimizer("adam")


def optimizer_names() -> tuple[str, ...]:
    """All optimizers that ship with the package."""
    return OPTIMIZERS.names()
