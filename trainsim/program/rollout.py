"""
The rollout ahead of the passes of each step: weights into the layout of generation, prompts, tokens, scores.

Engines that share the GPUs of training do all of it on the compute chains; then every rank waits for the last sample.
Engines on GPUs of their own are a chain beside the others, which takes nothing of these GPUs; compute waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

from trainsim.contracts.groups import TENSOR, WORLD, Group, Messages, Queue
from trainsim.contracts.instructions import (
    Hold,
    Instruction,
    Kernel,
    Meet,
    Memory,
    Piece,
    Program,
    Signal,
    Task,
    Template,
    Wait,
)
from trainsim.contracts.rollout import COLLECTED, DECODE, PREFILL, SCORING, WEIGHTS, Rollout
from trainsim.errors import InvalidPlan
from trainsim.program.batching import Batching, Iterations, Prompts, batching, cut_stretches
from trainsim.program.circulation import circulation, seconds, stage_tasks
from trainsim.program.inference import ELEMENT, Inference
from trainsim.program.parts import Parts
from trainsim.program.rank import RankPlan
from trainsim.sharding.replicas import within
from trainsim.units import format_bytes

UPDATE = "update"
"""``work`` of the template that ends a step."""
USUAL_UTILIZATION = 0.9
"""The part of a GPU's memory that vLLM takes unless it is told otherwise (its engine arguments)."""
PIECES = 8
"""Into about how many pieces the decoding of an engine is cut, so that it shows how it slows down."""
FLAG = 4.0
"""Bytes of the flag by which ranks tell each other that all samples are there."""


class EngineMemory(NamedTuple):
    """Bytes on each GPU of one stage of an engine: its weights, the cache of a token, room for the cache, and its
    workspace."""

    weights: float
    token: float
    room: float
    workspace: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RolloutPlan:
    """How a rollout is done: so many ``engines`` with ``samples`` each, in this ``batching``.

    ``tasks`` are those of each stage of an engine, numbered from 0 to ``passes``; ``memory`` is what its GPUs hold.
    Seconds alone: until the engines have their weights, and until all samples are there.
    """

    rollout: Rollout
    engines: int
    samples: int
    batching: Batching
    memory: tuple[EngineMemory, ...]
    tasks: tuple[tuple[Task, ...], ...]
    passes: int
    weights_seconds: float
    generation_seconds: float

    @property
    def fullest(self) -> EngineMemory:
        """What the stage holds that has least room for sequences."""
        return min(self.memory, key=lambda memory: memory.room / memory.token)

    @property
    def cache_peak(self) -> float:
        """Bytes of the most blocks held at once, on each GPU of that stage."""
        return self.batching.blocks * self.rollout.unit * self.fullest.token

    @property
    def unused(self) -> float:
        """The fraction of the held blocks without a token, on average over sequences and iterations."""
        decoded = [step for step in self.batching.steps if not isinstance(step, Prompts)]
        read, empty = sum(step.read for step in decoded), sum(step.unused for step in decoded)
        return empty / (read + empty) if read else 0.0

    def exposed(self, training: float) -> float:
        """Seconds by which a step is longer than the *training* seconds that it takes without its rollout."""
        hidden = training if self.rollout.asynchronous else 0.0
        return self.weights_seconds + max(0.0, self.generation_seconds - hidden)


def rollout_plan(parts: Parts, programs: Sequence[Program]) -> RolloutPlan | None:
    """The rollout of the job, beside what its *programs* hold; None where it has none.

    Raises InvalidPlan where an engine has no room for a single sequence.
    """
    rollout = parts.job.training.rollout
    if rollout is None:
        return None
    inference = Inference(parts, rollout)
    gpus = parts.job.parallel.ranks if rollout.nodes is None else rollout.nodes * parts.job.cluster.gpus_per_node
    engines = gpus // (rollout.tp * rollout.pp)
    samples = rollout.samples // engines
    memory = _memory(inference, _budget(parts, rollout, programs), samples)
    blocks = min(int(stage.room // (rollout.unit * stage.token)) for stage in memory)
    done = batching(rollout, samples, blocks)
    tasks, passes, seconds = _generation(inference, done, samples)
    return RolloutPlan(
        rollout=rollout,
        engines=engines,
        samples=samples,
        batching=done,
        memory=memory,
        tasks=tasks,
        passes=passes,
        weights_seconds=max(_alone(parts, _weights(parts, rollout, program.stage, memory)) for program in programs),
        generation_seconds=seconds + _alone(parts, _collected(parts)),
    )


def _memory(inference: Inference, budget: float, samples: int) -> tuple[EngineMemory, ...]:
    """What each stage of an engine makes of its *budget*, bytes."""
    rollout, out = inference.rollout, list[EngineMemory]()
    at_once = min(samples, rollout.max_num_seqs or samples)
    for stage in range(rollout.pp):
        weights, workspace = inference.weights(stage), inference.workspace(stage, at_once)
        memory = EngineMemory(weights, inference.token_bytes(stage), budget - weights - workspace, workspace)
        if memory.room // (rollout.unit * memory.token) * rollout.unit < rollout.length - 1:
            raise InvalidPlan(_no_room(rollout, memory, budget))
        out.append(memory)
    return tuple(out)


def _budget(parts: Parts, rollout: Rollout, programs: Sequence[Program]) -> float:
    """Bytes that an engine may take of a GPU: a part of it, or of the usual part what training does not hold."""
    cluster = parts.job.cluster
    capacity, kept = cluster.gpu.usable_memory, rollout.kept_memory + cluster.reserved_memory
    if rollout.gpu_memory_utilization is not None:
        return rollout.gpu_memory_utilization * capacity - rollout.kept_memory
    held = 0.0 if rollout.separate else max(program.memory.total for program in programs)
    return USUAL_UTILIZATION * capacity - held - kept


def _no_room(rollout: Rollout, memory: EngineMemory, budget: float) -> str:
    need, left = format_bytes(rollout.length * memory.token), format_bytes(max(0.0, memory.room))
    return (
        f"training.rollout: an engine (tp {rollout.tp}, pp {rollout.pp}) may take {format_bytes(max(0.0, budget))} of "
        f"a GPU, its weights take {format_bytes(memory.weights)} of that, and the cache has {left} where a single "
        f"sequence of {rollout.length} tokens needs {need}; a larger tp, pp or gpu_memory_utilization would help, more "
        "sharing of states in training, or placement: separate"
    )


def _generation(inference: Inference, done: Batching, samples: int) -> tuple[tuple[tuple[Task, ...], ...], int, float]:
    """The tasks of each stage of an engine, the number of its passes, and its seconds alone."""
    rollout, steps = inference.rollout, cut_stretches(done.steps, PIECES)
    if rollout.pp == 1:
        tasks = tuple(Task(template, k) for k, template in enumerate(_whole(inference, steps, samples)))
        return (tasks,), len(tasks), sum(_alone(inference.parts, task.template.instructions) for task in tasks)
    passes, way = circulation(inference, steps, samples), Messages("tokens", 1, (rollout.tp, rollout.pp))
    network = inference.parts.network
    total = seconds(passes, cache(partial(network.seconds, way, "message")), rollout.pp)
    stages = tuple(stage_tasks(passes, way, stage, rollout.pp) for stage in range(rollout.pp))
    return stages, len(passes), total


def _whole(inference: Inference, steps: Iterable[Prompts | Iterations], samples: int) -> Iterator[Template]:
    """Prompts, tokens and scores of an engine that is one stage: what a stretch of iterations takes is one task."""
    rollout = inference.rollout
    for step in steps:
        if isinstance(step, Prompts):
            yield Template(PREFILL, 0, inference.prompts(step.sequences, step.tokens))
        else:
            yield Template(DECODE, 0, inference.decode(step.sequences, step.read, step.iterations))
    if rollout.scored_by:
        scores = Template(SCORING, 0, inference.prompts(samples, rollout.length, scores=True))
        yield from (scores for _ in range(rollout.scored_by))


def _alone(parts: Parts, instructions: Iterable[Instruction]) -> float:
    return parts.blocks.alone(i for i in instructions if isinstance(i, Kernel | Meet))


# -- weights -----------------------------------------------------------------------------------------------------


def _weights(parts: Parts, rollout: Rollout, rank: int, memory: Sequence[EngineMemory]) -> list[Kernel | Meet]:
    """What pipeline rank *rank* does until engines have the new weights: gathers what replicas share and what other
    ranks of its replica hold of an engine's part, and writes it to where engines have it, or sends it there."""
    rank_plan, out = RankPlan(parts=parts, rank=rank), list[Kernel | Meet]()
    for group, shards in rank_plan.held:
        if shards.weights > 1:
            over = within(parts.job, shards.weights) if shards.weights < group.replicas else group.over
            out.append(_gather(over.on(Queue.COMPUTE), float(ELEMENT * group.total)))
    own = float(ELEMENT * rank_plan.parameters)
    if rollout.separate:
        return [*out, _sent(parts, own)]
    out += _resharded(parts, rollout, own)
    return [*out, parts.blocks.traffic("load weights", 2 * max(stage.weights for stage in memory), "copy")]


def _gather(over: Group, nbytes: float) -> Meet:
    return Meet("gather weights", "dp", over, "all_gather", nbytes, stream="dp")


def _resharded(parts: Parts, rollout: Rollout, own: float) -> Iterator[Meet]:
    """A gather over those who hold parts of the same layers or other layers; nothing where the part of an engine's GPU
    lies within that of a training rank, as it does if its degrees are multiples of those of training."""
    degrees = parts.job.parallel
    axes = tuple(axis for axis in ("tp", "pp") if getattr(rollout, axis) % getattr(degrees, axis))
    over = TENSOR if axes == ("tp",) else Group(axes)
    if axes and parts.network.has(over):
        whole = ELEMENT * sum(RankPlan(parts=parts, rank=rank).parameters for rank in range(degrees.pp))
        yield _gather(over, (whole if "pp" in axes else own) * (degrees.tp if "tp" in axes else 1))


def _sent(parts: Parts, nbytes: float) -> Kernel:
    """The weights on their way to engines in other nodes: every rank of a replica sends its part over its NIC."""
    cluster, efficiency = parts.job.cluster, parts.job.framework.communication.network_efficiency
    nic = cluster.fabric.nic_bandwidth * cluster.fabric.reachable * efficiency
    rate = nic * min(1.0, cluster.nics_per_node / cluster.gpus_per_node)
    return Kernel("send weights", "dp", nbytes / rate + cluster.fabric.latency, 0.0, 0.0, stream="dp")


def _collected(parts: Parts) -> list[Meet]:
    """All ranks wait until the last sample is there."""
    return [Meet("samples", "other", WORLD, "all_reduce", FLAG)] if parts.network.has(WORLD) else []


# -- chains ------------------------------------------------------------------------------------------------------


def with_rollout(program: Program, parts: Parts, plan: RolloutPlan, stage: int) -> Program:
    """*program* with the rollout ahead of the passes of each step, on ranks that are *stage* of their engine."""
    compute, step, head = list[Task](), 0, True
    for task in program.chains["compute"]:
        if head:
            compute += _ahead(program, parts, plan, stage, step)
        compute.append(task)
        head = task.template.work == UPDATE
        step += head
    chains = {**program.chains, "compute": tuple(compute)}
    if plan.rollout.separate:
        chains["rollout"] = tuple(task for number in range(step) for task in _beside(plan, number))
    return replace(program, chains=chains, memory=_kept(program, plan, stage))


def _ahead(program: Program, parts: Parts, plan: RolloutPlan, stage: int, step: int) -> Iterator[Task]:
    """What stands before the passes of *step* on the compute chain."""
    rollout, memory = plan.rollout, plan.memory[stage]
    pieces: list[Piece] = [*_updated(program, step), *_weights(parts, rollout, program.stage, plan.memory)]
    if rollout.separate:
        last = [Wait("samples", step - 1)] if rollout.asynchronous and step else []
        yield Task(Template.of(WEIGHTS, 0, [*last, *pieces, Signal("new weights")]), step)
        if not rollout.asynchronous:
            yield Task(Template.of(COLLECTED, 0, [Wait("samples"), *_collected(parts)]), step)
        return
    held = [Hold("gathered", memory.weights), Hold("temporary", memory.workspace), Hold("kv_cache", memory.room)]
    held = held if rollout.sleep else []
    yield Task(Template.of(WEIGHTS, 0, [*held[:1], *pieces]), step)
    first, *others = _numbered(plan, stage, step)
    opening = Template.of(first.template.work, 0, [*held[1:], *first.template.instructions])
    yield Task(opening, first.microbatch)
    yield from others
    freed = (Hold(hold.category, -hold.nbytes) for hold in held)
    yield Task(Template.of(COLLECTED, 0, [*_collected(parts), *freed]), step)


def _numbered(plan: RolloutPlan, stage: int, step: int) -> list[Task]:
    """The tasks of an engine's stage, whose numbers go on from those of the step before."""
    return [Task(task.template, step * plan.passes + task.microbatch) for task in plan.tasks[stage]]


def _beside(plan: RolloutPlan, step: int) -> Iterator[Task]:
    """The engines of other GPUs: what they do takes nothing of these."""
    (tasks,) = plan.tasks
    for k, (template, _) in enumerate(tasks):
        elsewhere = [replace(i, sm=0.0, hbm=0.0) for i in template.instructions if isinstance(i, Kernel)]
        begin = [Wait("new weights")] if k == 0 else []
        end = [Signal("samples")] if k == len(tasks) - 1 else []
        yield Task(Template.of(template.work, 0, [*begin, *elsewhere, *end]), step)


def _updated(program: Program, step: int) -> Iterator[Wait]:
    """Engines take weights that are all there: those that a chain gathers ahead of the passes too."""
    gathers = (t.template for t in program.chains.get("dp", ()) if t.template.work == "gather" and t.microbatch == step)
    for template in dict.fromkeys(gathers):
        yield from (Wait(signal.event, step) for signal in template.posted.signals)


def _kept(program: Program, plan: RolloutPlan, stage: int) -> Memory:
    """What is held while training too."""
    memory, rollout, engine = program.memory, plan.rollout, plan.memory[stage]
    if rollout.separate:
        return memory
    memory = replace(memory, framework=memory.framework + rollout.kept_memory)
    if rollout.sleep:
        return memory
    return replace(memory, gathered=memory.gathered + engine.weights, buffers=memory.buffers + engine.workspace,
                   kv_cache=engine.room)  # fmt: skip
