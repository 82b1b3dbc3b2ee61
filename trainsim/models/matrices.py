"""
The tensors of a model on one rank, by shape: what optimizers keep states for, and what adapters are put on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from trainsim.models.layer_kind import LayerKind, counted
from trainsim.models.linears import linears, vectors
from trainsim.models.transformer import MTP_NORMS, Transformer, padded_vocab


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

    Experts are aside (``expert_tensors``). The elements of a dense model add up to ``parameters_per_rank``.

    >>> from trainsim.models.reading import load_model
    >>> model = load_model("llama-2-7b")
    >>> tensors(model, 1, model.kinds, embedding=True, head=True).total
    6738415616
    """
    rows = (vocab or padded_vocab(model.vocab, tp)) // tp
    layers = joined(tuple(_layer(kind, tp, count) for kind, count in counted(kinds).items()))
    copies = int(embedding) + int(head and not (model.tied_embeddings and embedding))
    copies += bool(head and model.mtp_layers and not embedding and not model.tied_embeddings)
    tables = [Matrix(rows, model.embedding_width, copies)] if copies else []
    if embedding and model.position_parameters:
        tables.append(Matrix(*model.position_table, 1))
    if model.embedding_size is not None and embedding + head:
        tables.append(Matrix(model.hidden, model.embedding_size, embedding + head))
    ends = model.embedding_norm_parameters * embedding + model.final_norm_parameters * head
    ends += rows if head and model.head_bias else 0
    further = mtp_tensors(model, tp) if head and model.mtp_layers else Tensors((), (), 0)
    whole = joined((Tensors(layers.matrices, (), layers.vectors + ends), further))
    return whole._replace(tables=tuple(tables))


def mtp_tensors(model: Transformer, tp: int) -> Tensors:
    """The tensors of the layers that predict tokens further on, experts aside, on one of *tp* ranks.

    >>> from trainsim.models.reading import load_model
    >>> model = load_model({"base": "deepseek-v3", "mtp_layers": 1})
    >>> mtp_tensors(model, 1).total + expert_tensors(model.kinds[-1:], 1).total == model.mtp_parameters
    True
    """
    inside = _layer(model.kinds[-1], tp, model.mtp_layers)
    projection = Matrix(model.hidden // tp, 2 * model.hidden, model.mtp_layers)
    norms = MTP_NORMS * model.mtp_layers * model.norm_parameters
    return Tensors(_merged([*inside.matrices, projection]), (), inside.vectors + norms)


def expert_tensors(kinds: tuple[LayerKind, ...], tp: int, *, ep: int = 1, etp: int | None = None) -> Tensors:
    """The tensors of the experts that one rank has of layers of these *kinds*, a matrix per expert.

    >>> from trainsim.models.reading import load_model
    >>> expert_tensors(load_model("mixtral-8x7b").kinds[:1], 1, ep=4).matrices
    (Matrix(rows=14336, columns=4096, copies=4), Matrix(rows=4096, columns=14336, copies=2))
    """
    made = [(w, count) for kind, count in counted(kinds).items() for w in linears(kind, tp, ep=ep, etp=etp) if w.expert]
    matrices = _merged([Matrix(w.outputs, w.inputs, w.copies * count) for w, count in made])
    return Tensors(matrices, (), sum(w.biases * count for w, count in made))


def _layer(kind: LayerKind, tp: int, count: int) -> Tensors:
    """The tensors of *count* layers of one kind, experts aside."""
    inside = [w for w in linears(kind, tp) if not w.expert]
    return Tensors(
        matrices=tuple(Matrix(w.outputs, w.inputs, count * w.copies) for w in inside),
        tables=(),
        vectors=count * (sum(w.biases for w in inside) + sum(v.weight + v.bias for v in vectors(kind, tp))),
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
