"""
The tensors of a model on one rank, by shape: what optimizers keep states for, and what adapters are put on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from trainsim.models.layer_kind import LayerKind, counted
from trainsim.models.transformer import Transformer, padded_vocab


class Linear(NamedTuple):
    """A linear layer of a transformer layer on one rank: ``outputs`` x ``inputs``.

    ``product`` is the matrix product that it is a part of (``qkv``, ``proj``, ``fc1``, ``fc2``); ``parallel`` says
    whether its columns (outputs) or rows (inputs) are cut over the tensor-parallel group.
    """

    name: str
    product: str
    outputs: int
    inputs: int
    parallel: str


class Matrix(NamedTuple):
    """``copies`` equal matrices."""

    rows: int
    columns: int
    copies: int

    @property
    def elements(self) -> int:
        return self.rows * self.columns * self.copies


class Tensors(NamedTuple):
    """Parameters by kind: ``matrices`` of the layers, ``tables`` (embeddings, head), ``vectors`` (norms, biases)."""

    matrices: tuple[Matrix, ...]
    tables: tuple[Matrix, ...]
    vectors: int

    @property
    def total(self) -> int:
        """Parameters of all kinds."""
        return sum(m.elements for m in (*self.matrices, *self.tables)) + self.vectors


def linears(kind: LayerKind, tp: int) -> tuple[Linear, ...]:
    """The linear layers of one transformer layer on one of *tp* ranks, in forward order.

    >>> from trainsim.models.reading import load_model
    >>> [(linear.name, linear.outputs, linear.inputs) for linear in linears(load_model("llama-3-8b").kind, 2)][:3]
    [('q', 2048, 4096), ('k', 512, 4096), ('v', 512, 4096)]
    """
    h, queries = kind.hidden, max(1, kind.heads // tp) * kind.head_dim
    keys, width = max(1, kind.kv_heads // tp) * kind.head_dim, kind.ffn_hidden // tp
    first = ("gate", "up") if kind.gated_mlp else ("fc1",)
    return (
        Linear("q", "qkv", queries, h, "column"),
        Linear("k", "qkv", keys, h, "column"),
        Linear("v", "qkv", keys, h, "column"),
        Linear("o", "proj", h, queries, "row"),
        *(Linear(name, "fc1", width, h, "column") for name in first),
        Linear("down" if kind.gated_mlp else "fc2", "fc2", h, width, "row"),
    )


@lru_cache(maxsize=1024)
def tensors(
    model: Transformer,
    tp: int,
    kinds: tuple[LayerKind, ...],
    *,
    embedding: bool = False,
    head: bool = False,
    vocab: int | None = None,
) -> Tensors:
    """The tensors of a rank with layers of these *kinds* and, if so said, the embedding and the head (*vocab*: padded).

    Their elements add up to ``parameters_per_rank``.

    >>> from trainsim.models.reading import load_model
    >>> model = load_model("llama-2-7b")
    >>> tensors(model, 1, model.kinds, embedding=True, head=True).total
    6738415616
    """
    rows = (vocab or padded_vocab(model.vocab, tp)) // tp
    layers = joined(tuple(_layer(kind, tp, count) for kind, count in counted(kinds).items()))
    copies = int(embedding) + int(head and not (model.tied_embeddings and embedding))
    tables = [Matrix(rows, model.hidden, copies)] if copies else []
    if embedding and model.position_parameters:
        tables.append(Matrix(model.max_positions, model.hidden, 1))
    ends = model.embedding_norm_parameters * embedding + model.final_norm_parameters * head
    return Tensors(matrices=layers.matrices, tables=tuple(tables), vectors=layers.vectors + ends)


def _layer(kind: LayerKind, tp: int, count: int) -> Tensors:
    """The tensors of *count* layers of one kind."""
    inside = linears(kind, tp)
    biases = {"all": sum(x.outputs for x in inside), "qkv": sum(x.outputs for x in inside[:3]), "none": 0}
    return Tensors(
        matrices=tuple(Matrix(linear.outputs, linear.inputs, count) for linear in inside),
        tables=(),
        vectors=count * (biases[kind.biases] + 2 * kind.norm_parameters),
    )


def joined(some: tuple[Tensors, ...]) -> Tensors:
    """All of *some* in one, with equal shapes counted together.

    >>> joined((Tensors((Matrix(2, 3, 1),), (), 1), Tensors((Matrix(2, 3, 4),), (), 2)))
    Tensors(matrices=(Matrix(rows=2, columns=3, copies=5),), tables=(), vectors=3)
    """
    return Tensors(
        matrices=_merged([m for group in some for m in group.matrices]),
        tables=_merged([m for group in some for m in group.tables]),
        vectors=sum(group.vectors for group in some),
    )


def _merged(matrices: list[Matrix]) -> tuple[Matrix, ...]:
    counts: dict[tuple[int, int], int] = {}
    for m in matrices:
        counts[m.rows, m.columns] = counts.get((m.rows, m.columns), 0) + m.copies
    return tuple(Matrix(rows, columns, count) for (rows, columns), count in counts.items())
