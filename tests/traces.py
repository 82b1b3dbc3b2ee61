"""Traces made by hand: a pipeline executed by its definition, without the engine."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from trainsim.contracts.exact import ticks
from trainsim.contracts.groups import REPLICAS, TENSOR, Messages
from trainsim.contracts.instructions import Hold, Kernel, Meet, Memory, Payload, Program, Send, Task, Template
from trainsim.contracts.record import Label, Record, Run, TaskFacts, Tasks
from trainsim.contracts.trace import Trace
from trainsim.schedules import Slot, schedules


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A pipeline of equal stages; seconds per pass of one chunk."""

    schedule: str = "1f1b"
    stages: int = 4
    microbatches: int = 8
    chunks: int = 1
    layers: int = 2
    forward: float = 1.0
    backward: float = 2.0
    recompute: float = 0.0
    tp: float = 0.0
    latency: float = 0.0
    reduce: float = 0.0
    update: float = 0.0
    replicas: int = 1
    activation: float = 1e9


def kernels(shape: Shape, work: str) -> list[Kernel | Meet]:
    """The instructions of one pass, without messages."""
    out: list[Kernel | Meet] = []
    for layer in range(shape.layers):
        if work == "F":
            parts = [
                ("forward", "attention", shape.forward / 3),
                ("tp", "all_reduce", shape.tp),
                ("forward", "mlp", shape.forward * 2 / 3),
            ]
        else:
            parts = [
                ("recompute", "layer", shape.recompute),
                ("backward", "mlp", shape.backward * 2 / 3),
                ("tp", "all_reduce", shape.tp),
                ("backward", "attention", shape.backward / 3),
            ]
        for kind, name, seconds in parts:
            if seconds and kind == "tp":
                out.append(Meet(name, "tp", TENSOR, "all_reduce", 1e6, layer=layer, stream="tp"))
            elif seconds:
                out.append(Kernel(name, kind, ticks(seconds / shape.layers), layer=layer))
    return out


def seconds_of(shape: Shape, i: Kernel | Meet) -> float:
    return i.seconds if isinstance(i, Kernel) else ticks(shape.tp / shape.layers)


def label(i: Kernel | Meet) -> Label:
    return Label(i.name, i.kind, i.stream, i.layer, i.payloads)


def run_of(shape: Shape, instructions: list[Kernel | Meet]) -> Run:
    ends = list(accumulate(seconds_of(shape, i) for i in instructions))
    starts = (0.0, *ends[:-1])
    labels = tuple(label(i) for i in instructions)
    return Run(labels, starts, starts, tuple(ends))


WAYS = {"F": Messages("forward", 1), "B": Messages("backward", -1)}


class Builder:
    """Carries out the slots of every stage as soon as their inputs are there."""

    def __init__(self, shape: Shape):
        self.shape = shape
        p, v = shape.stages, shape.chunks
        self.slots = [
            list(schedules[shape.schedule](r, p, microbatches=shape.microbatches, chunks=v)) for r in range(p)
        ]
        self.runs: list[Run] = []
        self.names = [(r, "compute") for r in range(p)]
        self.names += [(r, way.chain) for way in WAYS.values() for r in range(p)]
        self.number = {name: k for k, name in enumerate(self.names)}
        self.rows = [Record() for _ in self.names]
        self.work = {w: (self.run(kernels(shape, w)), kernels(shape, w)) for w in ("F", "B")}
        self.send = self.run_message()
        self.arrived: dict[tuple[str, int, int], tuple[float, tuple[int, int] | None]] = {}
        self.free = [0.0] * p

    def run(self, instructions: list[Kernel | Meet]) -> int:
        self.runs.append(run_of(self.shape, instructions))
        return len(self.runs) - 1

    def run_message(self) -> int:
        c = ticks(self.shape.latency)
        for way in WAYS.values():
            self.runs.append(Run((Label("send", "pp", "pp", -1, (Payload(way, "send", 1e6),)),), (0.0,), (0.0,), (c,)))
        return len(self.runs) - 2

    def needs(self, rank: int, slot: Slot) -> tuple[str, int, int] | None:
        """What a slot waits for: an activation, a gradient, or nothing."""
        stage, last = slot.chunk * self.shape.stages + rank, self.shape.stages * self.shape.chunks - 1
        if slot.work == "F":
            return ("F", stage, slot.microbatch) if stage else None
        return ("B", stage, slot.microbatch) if stage < last else ("F", last + 1, slot.microbatch)

    def carry_out(self, rank: int, slot: Slot) -> bool:
        need = self.needs(rank, slot)
        if need is not None and need not in self.arrived:
            return False
        ready, cause = self.arrived[need] if need else (0.0, None)
        start = max(ready, self.free[rank])
        rows, number = self.rows[rank], self.work[slot.work][0]
        if start > self.free[rank] and cause:
            rows.causes.extend((len(rows), *cause))
        rows.table.extend((number, slot.microbatch, start, start))
        rows.tasks.append(len(rows))
        end = self.free[rank] = start + self.runs[number].ends[-1]
        self.pass_on(rank, slot, end)
        return True

    def pass_on(self, rank: int, slot: Slot, end: float) -> None:
        p = self.shape.stages
        stage = slot.chunk * p + rank
        to = stage + 1 if slot.work == "F" else stage - 1
        if not 0 <= to < p * self.shape.chunks or p == 1:
            self.arrived[slot.work, to, slot.microbatch] = (end, None)
            return
        chain = self.number[rank, WAYS[slot.work].chain]
        rows = self.rows[chain]
        rows.causes.extend((len(rows), rank, len(self.rows[rank]) - 1))
        rows.table.extend((self.send + (slot.work != "F"), slot.microbatch, end, end))
        self.arrived[slot.work, to, slot.microbatch] = (
            end + ticks(self.shape.latency),
            (chain, len(rows) - 1),
        )

    def passes(self) -> None:
        at = [0] * self.shape.stages
        going = True
        while going:
            going = False
            for r in range(self.shape.stages):
                while at[r] < len(self.slots[r]) and self.carry_out(r, self.slots[r][at[r]]):
                    at[r] += 1
                    going = True
        assert all(at[r] == len(self.slots[r]) for r in range(self.shape.stages)), "the schedule deadlocks"

    def update(self) -> list[Kernel | Meet]:
        shape = self.shape
        out: list[Kernel | Meet] = (
            [Meet("gradients", "dp", REPLICAS, "all_reduce", 1e9, stream="dp")] if shape.reduce else []
        )
        out += [Kernel("adam", "optimizer", ticks(shape.update))] if shape.update else []
        if out:
            ends = [ticks(shape.reduce)] * bool(shape.reduce) + [ticks(shape.reduce) + ticks(shape.update)] * bool(
                shape.update
            )
            starts = (0.0, *ends[:-1])
            self.runs.append(Run(tuple(label(i) for i in out), starts, starts, tuple(ends)))
            for r in range(shape.stages):
                self.rows[r].table.extend((len(self.runs) - 1, 0, self.free[r], self.free[r]))
                self.rows[r].tasks.append(len(self.rows[r]))
        return out


def holds(activation: float, work: str, end: int) -> tuple[tuple[int, Hold], ...]:
    """A pass that keeps or gives back an activation, and needs half of one for itself."""
    need = Hold("temporary", activation / 2)
    if work == "F":
        return (0, Hold("activations", activation)), (0, need), (end, Hold("temporary", -activation / 2))
    return (0, need), (end, Hold("temporary", -activation / 2)), (end, Hold("activations", -activation))


def programs(shape: Shape, builder: Builder, update: list[Kernel | Meet]) -> tuple[Program, ...]:
    """One per stage: what the builder carried out, as templates."""
    templates = {
        (w, c): Template(
            w, c, (*builder.work[w][1], Send("send", "pp", WAYS[w], 1e6, "x")),
            holds(shape.activation, w, len(builder.work[w][1])),
        )
        for w in ("F", "B") for c in range(shape.chunks)
    }  # fmt: skip
    end = (Task(Template("update", 0, tuple(update)), 0),) if update else ()
    memory = Memory(weights=10e9, gradients=10e9, optimizer=20e9, framework=1e9)
    return tuple(
        Program(
            chains={"compute": (*(Task(templates[s.work.value, s.chunk], s.microbatch) for s in slots), *end)},
            stage=r, parameters=5_000_000_000, memory=memory,
        )
        for r, slots in enumerate(builder.slots)
    )  # fmt: skip


def pipeline(shape: Shape) -> Trace:
    """The trace of a pipeline; ranks are laid stage by stage, ``replicas`` each."""
    builder = Builder(shape)
    builder.passes()
    stages = programs(shape, builder, builder.update())
    templates = {id(t.template): t.template for program in stages for t in program.chains["compute"]}
    number = {key: k for k, key in enumerate(templates)}
    nothing = Tasks(np.zeros(0, np.int64), np.zeros(0, np.int64))
    carried_out = [
        Tasks(
            np.array([number[id(t.template)] for t in program.chains["compute"]]),
            np.array([t.microbatch for t in program.chains["compute"]]),
        )
        for program in stages
    ]
    return Trace(
        rank_class=np.repeat(np.arange(shape.stages), shape.replicas),
        representative=np.arange(shape.stages) * shape.replicas, stage=np.arange(shape.stages),
        parameters=np.array([program.parameters for program in stages]),
        memory=tuple(program.memory for program in stages), runs=builder.runs,
        chains=tuple(builder.names), records=tuple(builder.rows),
        facts=tuple(TaskFacts.of(template) for template in templates.values()),
        tasks=tuple(carried_out[c] if name == "compute" else nothing for c, name in builder.names),
        messages={way.chain: way for way in WAYS.values()},
    )  # fmt: skip
