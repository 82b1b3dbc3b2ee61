"""
The parameters of each pipeline rank: how many of which part of a stage, their shapes, and who else holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainsim.contracts.groups import EXPERT_REPLICAS
from trainsim.contracts.job import Job
from trainsim.models.counts import parameters_per_rank
from trainsim.models.frozen import quantised, stored_as
from trainsim.models.layer_kind import LayerKind, LayerParameters, counted, layer_parameters
from trainsim.models.lora import adapter_tensors
from trainsim.models.matrices import Matrix, Tensors, expert_tensors, joined, mtp_tensors, tensors
from trainsim.program.stages import Stage
from trainsim.program.vocabulary import Vocabulary
from trainsim.sharding.parameter_groups import ADAPTERS, DENSE, EXPERTS, FROZEN, ChunkParameters, ParameterGroup
from trainsim.sharding.replicas import replicas


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Holdings:
    """Who holds which parameters of a job; experts are held by fewer ranks than the layers around them."""

    job: Job
    stages: tuple[Stage, ...]
    vocabulary: Vocabulary | None = None
    _alike: dict[Any, int] = field(default_factory=dict, repr=False)
    _tensors: dict[tuple[int, int], Tensors] = field(default_factory=dict, repr=False)
    _held: dict[int, ChunkParameters] = field(default_factory=dict, repr=False)
    _groups: dict[tuple[int, int | None], tuple[ParameterGroup, ...]] = field(default_factory=dict, repr=False)

    def of_rank(self, rank: int) -> tuple[Stage, ...]:
        """The chunks of pipeline rank *rank*, first to last."""
        return tuple(s for s in self.stages if s.rank == rank)

    def alike(self, rank: int) -> int:
        """The first pipeline rank that holds what *rank* holds; the first of all, which may have rules of its own, and
        shares of a head that is spread stand for themselves."""
        if not rank or self.vocabulary is not None:
            return rank
        stages = self.of_rank(rank)
        key = tuple((s.chunk, s.embedding, s.head, *map(id, self.kinds(s))) for s in stages)
        return self._alike.setdefault(key, rank)

    def kinds(self, stage: Stage) -> tuple[LayerKind, ...]:
        """The kinds of the layers of a virtual stage, in forward order."""
        return self.job.model.kinds[stage.first : stage.first + stage.layers]

    def gradients(self, stage: Stage) -> ChunkParameters:
        """Trained parameters of a virtual stage on one rank, split as their gradients become ready."""
        if self.job.model.lora is None:
            return self.held(stage).plus(self.experts(stage)) if self.job.experts_apart else self.held(stage)
        adapters = {kind: adapter_tensors([kind], self.job.parallel.tp).total for kind in counted(self.kinds(stage))}
        return ChunkParameters(head=0, layers=tuple(adapters[kind] for kind in self.kinds(stage)), embedding=0)

    def held(self, stage: Stage) -> ChunkParameters:
        """All parameters of a virtual stage on one rank, adapters aside, and experts where others hold them."""
        if stage.index not in self._held:
            self._held[stage.index] = self._count(stage)
        return self._held[stage.index]

    def experts(self, stage: Stage) -> ChunkParameters:
        """Parameters of the experts of a virtual stage on one rank, those that predict further tokens with its head."""
        of = {kind: self._layer(kind).experts for kind in counted(self.kinds(stage))}
        model = self.job.model
        further = model.mtp_layers * self._layer(model.kinds[-1]).experts if stage.head else 0
        return ChunkParameters(head=further, layers=tuple(of[kind] for kind in self.kinds(stage)), embedding=0)

    def _layer(self, kind: LayerKind) -> LayerParameters:
        """Parameters of a layer on one rank."""
        degrees = self.job.parallel
        return layer_parameters(kind, degrees.tp, ep=degrees.ep, etp=degrees.etp if kind.moe else None)

    def _count(self, stage: Stage) -> ChunkParameters:
        job = self.job

        def count(*, embedding: bool = False, head: bool = False) -> int:
            degrees = job.parallel
            return parameters_per_rank(
                job.model,
                degrees.tp,
                (),
                embedding=embedding,
                head=head,
                padded_vocab=job.padded_vocab,
                ep=degrees.ep,
                etp=degrees.etp if job.model.has_experts else None,
            )

        of = {kind: self._layer(kind) for kind in counted(self.kinds(stage))}
        layers = {kind: held.dense if job.experts_apart else held.total for kind, held in of.items()}
        embedding = count(embedding=stage.embedding) - (self._positions_elsewhere if stage.embedding else 0)
        beside = any(s.embedding for s in self.of_rank(stage.rank))  # a tied head beside the embedding is no copy
        head = count(embedding=beside, head=stage.head) - count(embedding=beside)
        head -= self.experts(stage).head if job.experts_apart else 0
        return ChunkParameters(
            head=head if self.vocabulary is None else self.vocabulary.parameters(stage),
            layers=tuple(layers[kind] for kind in self.kinds(stage)),
            embedding=embedding,
        )

    @property
    def _positions_elsewhere(self) -> int:
        """Learned positions whose rows other ranks of the tensor-parallel group hold, if they are cut."""
        positions, parallel = self.job.model.position_parameters, self.job.parallel
        return positions - positions // parallel.tp if parallel.position_parallel else 0

    def trained(self, rank: int, *, tp: int | None = None) -> Tensors:
        """The tensors that pipeline rank *rank* trains, cut over *tp* ranks (None: as it holds them); experts apart."""
        key = self.alike(rank), tp or self.job.parallel.tp
        if key not in self._tensors:
            self._tensors[key] = joined(tuple(self._trained(s, key[1]) for s in self.of_rank(key[0])))
        return self._tensors[key]

    def _trained(self, stage: Stage, tp: int) -> Tensors:
        """The tensors of a virtual stage; what embedding and head hold beside their norms is tables."""
        model = self.job.model
        if model.lora is not None:
            return adapter_tensors(self.kinds(stage), tp)
        parts, kinds = self.held(stage), self.kinds(stage)
        norms = model.embedding_norm_parameters * stage.embedding + model.final_norm_parameters * stage.head
        layers = tensors(model, tp, kinds)
        rows, left = divmod(parts.head + parts.embedding - norms - self._further(stage).total, model.hidden)
        made = joined((layers, self._further(stage, tp)))
        if model.has_experts and not self.job.experts_apart:
            made = joined((made, expert_tensors(kinds, tp)))
        tables = (Matrix(rows, model.hidden, 1),) if rows else ()
        return made._replace(tables=tables, vectors=made.vectors + norms + left)

    def _further(self, stage: Stage, tp: int | None = None) -> Tensors:
        """The tensors with the head that predict tokens further on, cut over *tp* ranks (None: as they are held)."""
        model, parts = self.job.model, tp or self.job.parallel.tp
        if not (stage.head and model.mtp_layers):
            return Tensors((), (), 0)
        here = mtp_tensors(model, parts)
        if model.kinds[-1].moe is None or self.job.experts_apart:
            return here
        return joined((here, expert_tensors(model.kinds[-1:] * model.mtp_layers, parts)))

    def groups(self, rank: int, *, tp: int | None = None) -> tuple[ParameterGroup, ...]:
        """The parameters of pipeline rank *rank* by who holds them alike; under adapters all others are frozen.

        Their shapes are as cut over *tp* ranks (None: as it holds them).
        """
        rank = self.alike(rank)
        if (rank, tp) not in self._groups:
            self._groups[rank, tp] = self._grouped(rank, tp)
        return self._groups[rank, tp]

    def _grouped(self, rank: int, tp: int | None) -> tuple[ParameterGroup, ...]:
        stages, alike = self.of_rank(rank), replicas(self.job)
        held = tuple(self.held(s) for s in stages)
        if self.job.model.lora is None:
            dense = ParameterGroup(name=DENSE, chunks=held, replicas=alike, tensors=self.trained(rank, tp=tp))
            return (dense, self._experts(stages, whole=tp == 1)) if self.job.experts_apart else (dense,)
        adapters = tuple(self.gradients(s) for s in stages)
        experts = replace(self._experts(stages, whole=tp == 1), trained=False)
        apart = (replace(experts, stored=self._stored(experts.total)),) if self.job.experts_apart else ()
        frozen, kinds = sum(chunk.total for chunk in held), [kind for s in stages for kind in self.kinds(s)]
        return (
            ParameterGroup(name=ADAPTERS, chunks=adapters, replicas=alike, tensors=self.trained(rank, tp=tp)),
            ParameterGroup(name=FROZEN, chunks=held, replicas=alike, trained=False, stored=self._stored(frozen, kinds)),
            *apart,
        )

    def _stored(self, frozen: int, kinds: Sequence[LayerKind] = ()) -> float | None:
        """Bytes of so many *frozen* parameters, those of layers of these *kinds* among them; None: nothing is said."""
        stored = stored_as(self.job.model.kind)
        if stored is None:
            return None
        if not stored.quantised:
            return stored.nbytes(1, frozen)
        matrices = quantised(kinds, self.job.parallel.tp)
        return self.job.training.number_bytes * (frozen - matrices.elements) + matrices.nbytes

    def _experts(self, stages: Sequence[Stage], *, whole: bool) -> ParameterGroup:
        """The experts of some stages; *whole*: with the shapes of experts that are not cut."""
        degrees, model = self.job.parallel, self.job.model
        further = model.kinds[-1:] * model.mtp_layers
        kinds = tuple(kind for s in stages for kind in (*self.kinds(s), *(further if s.head else ())))
        return ParameterGroup(
            name=EXPERTS,
            chunks=tuple(self.experts(s) for s in stages),
            replicas=degrees.edp,
            over=EXPERT_REPLICAS,
            tensors=expert_tensors(kinds, degrees.tp, ep=degrees.ep, etp=1 if whole else degrees.etp),
        )
