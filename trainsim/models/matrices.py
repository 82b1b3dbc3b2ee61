"""
The tensors of a model on one rank, by shape: what optimizers keep states for, and what adapters are put on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

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


def linears(model: Transformer, tp: int) -> tuple[Linear, ...]:
    """The linear layers of one transformer layer on one of *tp* ranks, in forward order.

    >>> from trainsim.models.transformer import load_model
    >>> [(one.name, one.outputs, one.inputs) for one in linears(load_model("llama-3-8b"), 2)][:3]
    [('q', 2048, 4096), ('k', 512, 4096), ('v', 512, 4096)]
    """
    h, queries = model.hidden, max(1, model.heads // tp) * model.head_dim
    keys, width = max(1, model.kv_heads // tp) * model.head_dim, model.ffn_hidden // tp
    first = ("gate", "up") if model.gated_mlp else ("fc1",)
    return (
        Linear("q", "qkv", queries, h, "column"),
        Linear("k", "qkv", keys, h, "column"),
        Linear("v", "qkv", keys, h, "column"),
        Linear("o", "proj", h, queries, "row"),
        *(Linear(name, "fc1", width, h, "column") for name in first),
        Linear("down" if model.gated_mlp else "fc2", "fc2", h, width, "row"),
    )


@lru_cache(maxsize=1024)
def tensors(
    model: Transformer,
    tp: int,
    layers: int,
    *,
    embedding: bool = False,
    head: bool = False,
    vocab: int | None = None,
) -> Tensors:
    """The tensors of a rank with *layers* layers and, if so said, the embedding and the head (*vocab*: padded).

    Their elements add up to ``parameters_per_rank``.

    >>> from trainsim.models.transformer import load_model
    >>> tensors(load_model("llama-2-7b"), 1, 32, embedding=True, head=True).total
    6738415616
    """
    rows = (vocab or padded_vocab(model.vocab, tp)) // tp
    inside = linears(model, tp)
    biases = {"all": sum(one.outputs for one in inside), "qkv": sum(one.outputs for one in inside[:3]), "none": 0}
    vectors = layers * (biases[model.biases] + 2 * model.norm_parameters)
    copies = int(embedding) + int(head and not (model.tied_embeddings and embedding))
    tables = [Matrix(rows, model.hidden, copies)] if copies else []
    if embedding and model.position_parameters:
        tables.append(Matrix(model.max_positions, model.hidden, 1))
    vectors += model.embedding_norm_parameters * embedding + model.final_norm_parameters * head
    return Tensors(
        matrices=tuple(Matrix(one.outputs, one.inputs, layers) for one in inside if layers),
        tables=tuple(tables),
        vectors=vectors,
    )


def joined(some: tuple[Tensors, ...]) -> Tensors:
    """All of *some* in one, with equal shapes counted together.

    >>> joined((Tensors((Matrix(2, 3, 1),), (), 1), Tensors((Matrix(2, 3, 4),), (), 2)))
    Tensors(matrices=(Matrix(rows=2, columns=3, copies=5),), tables=(), vectors=3)
    """
    return Tensors(
        matrices=_merged([m for one in some for m in one.matrices]),
        tables=_merged([m for one in some for m in one.tables]),
        vectors=sum(one.vectors for one in some),
    )


def _merged(matrices: list[Matrix]) -> tuple[Matrix, ...]:
    counts: dict[tuple[int, int], int] = {}
    for m in matrices:
        counts[m.rows, m.columns] = counts.get((m.rows, m.columns), 0) + m.copies
    return tuple(Matrix(rows, columns, count) for (rows, columns), count in counts.items())
