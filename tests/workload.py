"""
Small 3D-parallel training steps straight to a ``System``: the workloads of the tests of engine and fold.

Deliberately not the package's own planning: it has sharing, ramps, several operations per communicator, messages in
flight and everything else that the engine must get right, and no cost model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trainsim.contracts.groups import REPLICAS, TENSOR, WORLD, Messages, Peers
from trainsim.contracts.instructions import Hold, Instruction, Kernel, Meet, Program, Send, Signal, Task, Template, Wait
from trainsim.contracts.system import Communicator, Ints, Pattern, System

# name, seconds per unit, SM, HBM
FORWARD, BACKWARD = Messages("forward", 1), Messages("backward", -1)
LAYER = (
    ("norm1", 0.05, 0.6, 0.9), ("qkv", 0.6, 1.0, 0.3), ("rope", 0.04, 0.5, 0.9), ("attention", 0.3, 1.0, 0.2),
    ("projection", 0.2, 1.0, 0.3), ("add1", 0.03, 0.5, 0.9), ("norm2", 0.05, 0.6, 0.9), ("copy", 0.05, 0.6, 0.9),
    ("up", 0.8, 1.0, 0.3), ("gelu", 0.07, 0.5, 0.95), ("down", 0.8, 1.0, 0.3), ("add2", 0.03, 0.5, 0.9),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """GPUs with an NVLink port each way, nodes, and NICs that GPUs share."""

    ranks: int
    gpus_per_node: int = 8
    gpus_per_nic: int = 1
    nvlink: float = 300e9
    nic: float = 25e9
    slow_nic: dict[int, float] = field(default_factory=dict)
    ramp: float = 0.0

    @property
    def nics(self) -> int:
        return -(-self.ranks // self.gpus_per_nic)

    def capacities(self) -> np.ndarray:
        """NVLink out and in of each GPU, NIC out and in."""
        nic = np.full(self.nics, self.nic)
        for k, factor in self.slow_nic.items():
            nic[k] *= factor
        return np.concatenate([np.full(2 * self.ranks, self.nvlink), nic, nic])

    @property
    def sm(self) -> Ints:
        return 2 * (self.ranks + self.nics) + np.arange(self.ranks)

    @property
    def hbm(self) -> Ints:
        return self.sm + self.ranks

    @property
    def resources(self) -> int:
        return 4 * self.ranks + 2 * self.nics

    def nearest(self) -> Ints:
        """The rank that a resource would belong to if nobody else came in: its GPU."""
        me = np.arange(self.ranks)
        nic = me if self.gpus_per_nic == 1 else np.full(self.nics, -1)
        return np.concatenate([me, me, nic, nic, me, me])

    def pattern(self, group_of, groups, edges, *, factor=1.0, sm=0.0, hbm=0.0) -> Pattern:
        """*edges* (group, from, to) all carry the same flow; the tightest link sets the pace."""
        group, src, dst = edges
        r, capacity = self.ranks, self.capacities()
        far = src // self.gpus_per_node != dst // self.gpus_per_node
        out = np.where(far, 2 * r + src // self.gpus_per_nic, src)
        into = np.where(far, 2 * r + self.nics + dst // self.gpus_per_nic, r + dst)
        key, count = np.unique(
            np.concatenate([group, group]) * len(capacity) + np.concatenate([out, into]), return_counts=True
        )
        use_group, use_resource = np.divmod(key, len(capacity))
        bandwidth = np.full(groups, np.inf)
        np.minimum.at(bandwidth, use_group, capacity[use_resource] / count)
        crosses = np.zeros(groups, bool)
        crosses[group[far]] = True
        columns = [(use_group, use_resource, bandwidth[use_group] * count / capacity[use_resource], np.zeros(len(key)))]
        for of in group_of:
            member = np.flatnonzero(of >= 0)
            for amount, resource, hold in ((sm, self.sm, 1), (hbm, self.hbm, 0)):
                if amount:
                    size = len(member)
                    columns.append((of[member], resource[member], np.full(size, amount), np.full(size, hold)))
        uses = [np.concatenate(column) for column in zip(*columns, strict=True)]
        bandwidth[np.isinf(bandwidth)] = 1e12
        return Pattern(
            factor=np.full(groups, factor), bandwidth=bandwidth, latency=np.where(crosses, 8e-6, 3e-6),
            ramp=np.full(groups, self.ramp), chain=np.zeros(groups), chain_bytes=np.zeros(groups),
            use_group=uses[0], use_resource=uses[1], use_amount=uses[2],
            use_hold=uses[3].astype(bool),
        )  # fmt: skip

    def system(self, programs, program_of, communicators, slow=None) -> System:
        factor = np.ones(self.ranks)
        for rank, f in (slow or {}).items():
            factor[rank] = f
        return System(
            programs=tuple(programs), program_of=np.asarray(program_of), slow=factor, communicators=communicators,
            resources=self.resources, sm=self.sm, hbm=self.hbm, owner=owners(self.nearest(), communicators),
        )  # fmt: skip


def owners(nearest: Ints, communicators: dict[Peers, Communicator]) -> Ints:
    """*nearest*, where no group uses the resource without that rank's post."""
    owner = nearest.copy()
    for c in communicators.values():
        for p in c.patterns.values():
            stranger = c.group_of[0][nearest[p.use_resource]] != p.use_group
            owner[p.use_resource[stranger]] = -1
    return owner


def rings(hardware: Hardware, grid: Ints, *, operations=("all_reduce",), sm=0.0, hbm=0.0) -> Communicator:
    """One ring along the last axis for each index of the others; operations differ in what they hold."""
    members = grid.reshape(-1, grid.shape[-1])
    group = np.repeat(np.arange(len(members)), members.shape[1])
    of = np.full(hardware.ranks, -1)
    of[members.ravel()] = group
    src, dst = members.ravel(), np.roll(members, -1, axis=1).ravel()
    hop = src != dst
    edges = group[hop], src[hop], dst[hop]
    patterns = {
        name: hardware.pattern(
            (of,), len(members), edges, factor=2.0 if name == "all_reduce" else 1.0, sm=sm / (k + 1), hbm=hbm * (k + 1)
        )
        for k, name in enumerate(operations)
    }
    return Communicator(group_of=(of,), groups=len(members), patterns=patterns)


def pairs(hardware: Hardware, src: Ints, dst: Ints, *, sm=0.0) -> Communicator:
    columns = []
    for end in (src, dst):
        column = np.full(hardware.ranks, -1)
        column[end] = np.arange(len(src))
        columns.append(column)
    edges = np.arange(len(src)), src, dst
    return Communicator(
        group_of=tuple(columns), groups=len(src), patterns={"send": hardware.pattern(columns, len(src), edges, sm=sm)}
    )


@dataclass(frozen=True, kw_only=True)
class Job:
    """A GPT-like step under 1F1B. Sizes in bytes, ``kernel`` in seconds per unit of LAYER."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    microbatches: int = 1
    layers: tuple[int, ...] = ()  # per stage
    buckets: int = 4
    order: str = "tp dp pp"  # innermost first
    kernel: float = 1e-3
    activation: float = 50e6
    gradients: float = 500e6  # bytes per layer and rank
    recompute: bool = True
    sequence_parallel: bool = False
    zero1: bool = False
    norm: bool = False  # a tiny all-reduce over all ranks before the optimizer
    blocking: bool = False
    dp_sm: float = 0.15
    dp_hbm: float = 0.1
    p2p_sm: float = 0.0
    slow: dict[int, float] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        return self.tp * self.pp * self.dp


def build(job: Job, hardware: Hardware | None = None) -> System:
    """The step of *job* on *hardware*."""
    hardware = hardware or Hardware(ranks=job.ranks)
    shape, names = {"tp": job.tp, "dp": job.dp, "pp": job.pp}, job.order.split()
    grid = np.arange(job.ranks).reshape([shape[n] for n in reversed(names)])
    grid = np.moveaxis(grid, [list(reversed(names)).index(n) for n in ("pp", "dp", "tp")], [0, 1, 2])
    c: dict[Peers, Communicator] = {}
    if job.tp > 1:
        operations = ("all_gather", "reduce_scatter") if job.sequence_parallel else ("all_reduce",)
        c[TENSOR] = rings(hardware, grid, operations=operations, sm=0.1, hbm=0.1)
    if job.dp > 1:
        operations = ("reduce_scatter", "all_gather") if job.zero1 else ("all_reduce",)
        c[REPLICAS] = rings(hardware, np.swapaxes(grid, 1, 2), operations=operations, sm=job.dp_sm, hbm=job.dp_hbm)
    if job.pp > 1:
        c[FORWARD] = pairs(hardware, grid[:-1].ravel(), grid[1:].ravel(), sm=job.p2p_sm)
        c[BACKWARD] = pairs(hardware, grid[1:].ravel(), grid[:-1].ravel(), sm=job.p2p_sm)
    if job.norm:
        c[WORLD] = rings(hardware, grid.reshape(1, -1), sm=0.05)
    stage = np.empty(job.ranks, np.int64)
    stage[grid.ravel()] = np.repeat(np.arange(job.pp), job.dp * job.tp)
    return hardware.system([_program(job, s) for s in range(job.pp)], stage, c, job.slow)


def _program(job: Job, stage: int) -> Program:
    first, last, m, layers = stage == 0, stage == job.pp - 1, job.microbatches, job.layers[stage]
    forward = _layer(job, "f", 1.0, True)
    backward = (*(_layer(job, "r", 1.0, True) if job.recompute else ()), *_layer(job, "b", 1.0, True),
                *_layer(job, "w", 1.0, False))  # fmt: skip
    cuts = {-(-layers * (k + 1) // job.buckets): k for k in range(job.buckets)} if job.dp > 1 else {}
    message = {"kind": "pp", "nbytes": job.activation, "stream": "pp", "blocking": job.blocking}
    before = () if first else (Wait("activation"),)
    after = () if last else (Send("F>", communicator=FORWARD, event="activation", **message),)
    head = () if last else (Wait("gradient"),)
    tail = () if first else (Send("B<", communicator=BACKWARD, event="gradient", **message),)
    final: list[Instruction] = [*head]
    for k in range(layers):
        final += backward
        if k + 1 in cuts:
            final.append(Signal(f"bucket{cuts[k + 1]}", 0))
    back = Hold("activations", -job.activation)
    templates = {
        "F": Template.of("F", 0, (Hold("activations", job.activation), *before, *forward * layers, *after)),
        "B": Template.of("B", 0, (*head, *backward * layers, *tail, back)),
        "Z": Template.of("B", 0, (*final, *tail, back)),
    }  # fmt: skip
    update: list[Instruction] = [Wait("reduced", 0)] if job.dp > 1 else []
    if job.norm:
        update.append(Meet("norm", "dp", WORLD, "all_reduce", 8.0))
    update.append(Kernel("optimizer", "optimizer", 5 * job.kernel, 0.6, 0.9))
    slots = ((w if w == "F" or k < m - 1 else "Z", k) for w, k in one_f_one_b(stage, job.pp, m))
    compute = [Task(templates[w], k) for w, k in slots]
    chains = {"compute": (*compute, Task(Template("update", 0, tuple(update)), -1))}
    if job.dp > 1:
        chains["dp"] = _reduction(job, cuts, job.gradients * layers / len(cuts))
    return Program(chains=chains, stage=stage)


def _reduction(job: Job, cuts: dict[int, int], size: float) -> tuple[Task, ...]:
    operation = "reduce_scatter" if job.zero1 else "all_reduce"
    reduce: list[Instruction] = []
    for k in cuts.values():
        reduce += [Wait(f"bucket{k}"), Meet(f"gradients{k}", "dp", REPLICAS, operation, size, -1, "dp")]
    if job.zero1:
        reduce.append(Meet("parameters", "dp", REPLICAS, "all_gather", size / 2, -1, "dp", 0.5))
    return (Task(Template("reduce", 0, (*reduce, Signal("reduced"))), 0),)


def _layer(job: Job, tag: str, factor: float, collectives: bool) -> tuple[Instruction, ...]:
    """Twelve kernels; a tensor-parallel collective after the attention and one after the MLP."""
    out: list[Instruction] = []
    for k, (name, seconds, sm, hbm) in enumerate(LAYER):
        if job.tp > 1 and collectives and job.sequence_parallel and k in (0, 6):
            out.append(Meet(f"{tag}.gather{k // 6}", "tp", TENSOR, "all_gather", job.activation, -1, "tp"))
        out.append(Kernel(f"{tag}.{name}", {"f": "forward", "r": "recompute"}.get(tag, "backward"),
                          seconds * job.kernel * factor, sm, hbm))  # fmt: skip
        if job.tp > 1 and collectives and k in (5, 11):
            operation = "reduce_scatter" if job.sequence_parallel else "all_reduce"
            out.append(Meet(f"{tag}.reduce{k // 6}", "tp", TENSOR, operation, job.activation, -1, "tp"))
    return tuple(out)


def one_f_one_b(stage: int, stages: int, m: int) -> Iterator[tuple[str, int]]:
    warmup = min(stages - stage - 1, m)
    yield from (("F", k) for k in range(warmup))
    for k in range(m - warmup):
        yield "F", warmup + k
        yield "B", k
    yield from (("B", k) for k in range(m - warmup, m))
