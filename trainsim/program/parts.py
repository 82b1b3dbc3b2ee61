"""
A job worked out once: its network, its virtual stages and the blocks that they are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainsim.contracts.groups import USUAL, Messages
from trainsim.contracts.instructions import Template
from trainsim.contracts.job import Job
from trainsim.models.layer_kind import LayerKind
from trainsim.models.layers import (
    Shape,
    Style,
    embedding_operations,
    head_operations,
    layer_operations,
)
from trainsim.models.lora import first_layer
from trainsim.program.block_costs import Blocks
from trainsim.program.detail import merged
from trainsim.program.early_updates import with_early_updates
from trainsim.program.experts import expert_shape, loads, with_load
from trainsim.program.holdings import Holdings
from trainsim.program.layer_work import head_launches, style_for
from trainsim.program.network import Network
from trainsim.program.pieces import Block
from trainsim.program.planning import Costs, PassSeconds, planned_costs
from trainsim.program.stages import Stage, recompute_modes, virtual_stages
from trainsim.program.vocabulary import Vocabulary, spread
from trainsim.schedules.lookup import facts, slices_of
from trainsim.sharding import strategies
from trainsim.sharding.launches import hook_seconds, launches_of, shape_of
from trainsim.sharding.plan import ShardingPlan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """What every stage of a job is built from. ``layers`` has the block of every layer of the model, in forward order:
    one value for all that are of one kind and run alike. Where the schedule cuts sequences, the blocks are those of the
    first slice, and ``later`` are the same parts with those of each later one. Where experts are not in balance, the
    blocks are those of the rank that gets most tokens."""

    job: Job
    network: Network
    blocks: Blocks
    holdings: Holdings
    layers: tuple[Block, ...]
    embedding: Block
    head: Block
    vocabulary: Vocabulary | None = None  # the rest of the head, where it is on all pipeline ranks
    later: tuple[Parts, ...] = ()
    uneven: tuple[Parts, ...] = ()  # by place among those that exchange tokens, where some get more than others
    planned_for: Costs | None = None  # the times by which the schedule plans; None: passes of equal length
    alike: dict[Any, Template] = field(default_factory=dict, repr=False)  # of passes, by what they are made of
    in_pairs: dict[Any, Any] = field(default_factory=dict, repr=False)  # seconds of blocks in two passes at once
    _coarse: dict[int, Block] = field(default_factory=dict, repr=False)
    _sharding: dict[int, ShardingPlan] = field(default_factory=dict, repr=False)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All virtual stages."""
        return self.holdings.stages

    @property
    def slices(self) -> tuple[Parts, ...]:
        """The parts of each slice of a sequence, the first one first; only these where it is whole."""
        return self, *self.later

    def of_rank(self, rank: int) -> tuple[Stage, ...]:
        """The chunks of pipeline rank *rank*, first to last."""
        return self.holdings.of_rank(rank)

    def layer_blocks(self, stage: Stage) -> tuple[Block, ...]:
        """The blocks of the layers of a virtual stage, in forward order."""
        return self.layers[stage.first : stage.first + stage.layers]

    def coarse(self, block: Block) -> Block:
        """One of these blocks with an interval per kind in place of its kernels and collectives."""
        if id(block) not in self._coarse:
            self._coarse[id(block)] = replace(
                block,
                forward=merged(block.forward, self.network),
                backward=merged(block.backward, self.network),
                input_gradient=merged(block.input_gradient, self.network),
                weight_gradient=merged(block.weight_gradient, self.network),
            )
        return self._coarse[id(block)]

    def resident(self, rank: int) -> float:
        """Bytes that pipeline rank *rank* holds once for all of its layers that run alike."""
        shared = {held for s in self.of_rank(rank) for block in self.layer_blocks(s) for held in block.resident}
        return float(sum(nbytes for _, nbytes in shared))

    def sharding(self, rank: int) -> ShardingPlan:
        """What pipeline rank *rank* sends for data parallelism.

        In a two-way pipeline it is also with the rank that holds the same stages, when all passes are over.
        """
        rank = self.holdings.alike(rank)
        if rank not in self._sharding:
            self._sharding[rank] = self._plan(rank)
        return self._sharding[rank]

    def _plan(self, rank: int) -> ShardingPlan:
        job, copies = self.job, self.network.replicas
        plan, groups = strategies[job.sharding.strategy].plan, self.holdings.groups(rank)
        if job.training.optimizer_in_backward:
            return with_early_updates(job, plan(job, rank, groups), groups)
        if copies == 1:
            return plan(job, rank, groups)
        late = replace(job, sharding=replace(job.sharding, overlap=False))
        return plan(late, rank, groups).twice(copies)

    def message_way(self, rank: int, there: int, direction: str) -> Messages:
        """The communicator of a message from pipeline rank *rank* to rank *there*.

        Forward usually goes to the next rank and backward to the one before; in V, wave and two-way placements some
        go the other way, over a communicator of their own.
        """
        usual = (rank + USUAL[direction]) % self.job.parallel.pp
        return Messages(direction, USUAL[direction] if there == usual else -USUAL[direction])

    @property
    def blocking(self) -> bool:
        """Whether messages are rendezvous between stages, posted in the schedule's order."""
        return self.job.pipeline.p2p == "blocking"

    @property
    def cut_messages(self) -> bool:
        """Whether the ranks of a tensor-parallel group send a part of the activation each."""
        return self.job.parallel.sequence_parallel or self.job.framework.communication.p2p_sliced

    @property
    def message_bytes(self) -> float:
        """Bytes of the activation that one stage sends to the next for one microbatch (or slice of one), per rank."""
        training, parallel = self.job.training, self.job.parallel
        tokens = training.micro_batch * training.sequence_length / parallel.cp
        tokens /= slices_of(self.job.pipeline.schedule, self.job.pipeline.group)
        cut = parallel.tp if self.cut_messages else 1
        return tokens * self.job.model.hidden * training.stream_bytes / cut

    def kept_output(self, stage: Stage) -> float:
        """Bytes of a stage's result that stay until its backward, if the framework does not let go of what it sent."""
        sent = stage.after is not None and self.stages[stage.after].rank != stage.rank
        share = self.job.parallel.tp if self.cut_messages and not self.job.parallel.sequence_parallel else 1
        return self.message_bytes * share if sent and self.job.framework.memory.keeps_outputs else 0.0


def work_out(job: Job, *, plans: bool = True) -> Parts:
    """Blocks and stages of *job*; nothing is laid out in time yet.

    Without *plans* the order of a schedule that plans by times is left open.
    """
    slices, shape, network = slices_of(job.pipeline.schedule, job.pipeline.group), shape_of(job), Network(job)
    length = shape.sequence_length
    if job.model.has_experts:
        shape = replace(shape, experts=expert_shape(job, network))
    first = _parts(job, Blocks(job, network), shape=shape)
    first = planned(first) if plans else first
    later = (_parts(job, first.blocks, shape=replace(shape, context=k * length)) for k in range(1, slices))
    first = replace(first, later=tuple(later)) if slices > 1 else first
    return replace(first, uneven=_uneven(first, shape)) if job.training.routing.loads else first


def planned(parts: Parts) -> Parts:
    """*parts* with the times by which their schedule plans, if it does."""
    if not facts(parts.job.pipeline.schedule).planned:
        return parts
    message = parts.network.seconds(Messages("forward", 1), "message", parts.message_bytes)
    times = [_pass_seconds(parts, stage) for stage in parts.stages]
    return replace(parts, planned_for=planned_costs(parts.job, times, message))


def _uneven(parts: Parts, shape: Shape) -> tuple[Parts, ...]:
    """The same parts as each rank has them among those that exchange tokens; () where all get as many."""
    every = loads(parts.job)
    made = {max(every): parts}
    for load in every:
        if load not in made:
            own = replace(shape, experts=with_load(shape.experts, load))
            made[load] = replace(
                parts, layers=_layers(parts.blocks, parts.stages, own, style_for(parts.job)), _coarse={}, in_pairs={}
            )
    return tuple(made[load] for load in every) if len(made) > 1 else ()


def _pass_seconds(parts: Parts, stage: Stage) -> PassSeconds:
    """Seconds of the three passes through a virtual stage whose backward is split."""
    blocks = [*parts.layer_blocks(stage), *[parts.embedding] * stage.embedding, *[parts.head] * stage.head]
    return PassSeconds(
        forward=sum(block.forward_seconds for block in blocks),
        input_gradient=sum(block.input_seconds for block in blocks),
        weight_gradient=sum(block.weight_seconds for block in blocks),
    )


def _parts(job: Job, blocks: Blocks, *, shape: Shape) -> Parts:
    """Stages of *job*, and the blocks of one shape."""
    style, stages = style_for(job), virtual_stages(job)
    split = facts(job.pipeline.schedule).split
    embedding, head = embedding_operations(job.model, shape, style), head_operations(job.model, shape, style)
    launches, vocabulary = head_launches(job, shape, style), None
    if job.pipeline.vocabulary_parallel:
        vocabulary = spread(blocks, shape, style)
        head, launches = head[:1], {"forward": 0, "backward": 0}
    return Parts(
        job=job,
        network=blocks.network,
        blocks=blocks,
        holdings=Holdings(job=job, stages=stages, vocabulary=vocabulary),
        layers=_layers(blocks, stages, shape, style),
        embedding=blocks.block(embedding, recompute="none", forward=0, backward=0, split=split),
        head=replace(blocks.block(head, recompute="none", **launches, split=split), category="logits"),
        vocabulary=vocabulary,
    )


def _layers(blocks: Blocks, stages: Sequence[Stage], shape: Shape, style: Style) -> tuple[Block, ...]:
    """The block of every layer, worked out once per kind and way to run it.

    Recomputation may be that of the first layers of each stage, or of every so many-th of a rank; under adapters
    nothing below the first layer is trained. The stages of a second replica hold the same layers as those of the first.
    """
    job, split = blocks.job, facts(blocks.job.pipeline.schedule).split
    modes = recompute_modes(job, stages)
    made: dict[tuple[LayerKind, str, bool], Block] = {}
    out: list[Block] = []
    for stage in stages:
        for place, kind in enumerate(job.model.kinds[stage.first : stage.first + stage.layers]):
            lowest = kind.lora is not None and stage.embedding and place == 0
            recompute = modes[stage.first + place]
            key = kind, recompute, lowest
            if key not in made:
                operations = layer_operations(kind, shape, style)
                made[key] = blocks.block(
                    first_layer(operations) if lowest else operations,
                    recompute=recompute,
                    **launches_of(job, kind, shape, style),
                    hooks=hook_seconds(job, kind),
                    split=split,
                    checkpoint=blocks.checkpoint(kind),
                )
            out.append(made[key])
        if stage.head:
            break
    return tuple(out)
