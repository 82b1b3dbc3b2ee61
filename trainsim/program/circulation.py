"""
An engine that is a pipeline: micro-batches go round its stages, and a token comes back before the next one starts.

Stages work in the order of a queue. Prompts enter one behind the other; a micro-batch of the next iteration enters once
the tokens of its sequences have come back from the last stage, so that with at least as many micro-batches as stages
nobody waits. Prompts and tokens are divided into micro-batches of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from trainsim.contracts.groups import Messages
from trainsim.contracts.instructions import Instruction, Kernel, Send, Task, Template, Wait
from trainsim.contracts.rollout import DECODE, PREFILL, SCORING
from trainsim.program.batching import Iterations, Prompts
from trainsim.program.inference import ELEMENT, Inference

RETURNED, ACTIVATION = "token", "activation"
"""Events of a stage: the token is there that a pass begins with, and the activation of the stage before."""
TOKEN = 8.0
"""Bytes of the number of a token."""


class EnginePass(NamedTuple):
    """A micro-batch that goes through all stages: what it is, its size (sequences), its kernels by stage and the bytes
    of its activation. ``after`` is the pass whose token it begins with."""

    work: str
    sequences: int
    kernels: tuple[tuple[Kernel, ...], ...]
    nbytes: float
    after: int | None


@dataclass
class _EngineQueue:
    """Passes in their order, and those whose tokens are the newest of the running sequences."""

    inference: Inference
    passes: list[EnginePass] = field(default_factory=list)
    newest: list[int] = field(default_factory=list)
    entered: list[int] = field(default_factory=list)
    made: dict[tuple[object, ...], tuple[tuple[Kernel, ...], ...]] = field(default_factory=dict)

    def prompts(self, step: Prompts, *, scores: bool = False) -> None:
        """Whole sequences, in micro-batches of their own."""
        inference, rollout = self.inference, self.inference.rollout
        batches = -(-step.sequences // max(1, rollout.max_num_batched_tokens // step.tokens))
        after = self.newest[-1] if self.newest else None
        for size in _sizes(step.sequences, max(rollout.prompt_micro_batches or rollout.pp, batches)):
            make = partial(inference.prompts, size, step.tokens, scores=scores)
            self.entered.append(len(self.passes))
            self._enter(SCORING if scores else PREFILL, (size, step.tokens), (step.tokens, size, scores), make, after)

    def decode(self, step: Iterations) -> None:
        """Iterations, each of which begins with the tokens of the one before, or of prompts."""
        inference, rollout = self.inference, self.inference.rollout
        sizes = list(_sizes(step.sequences, rollout.decode_micro_batches or rollout.pp))
        each = step.read / step.iterations / step.sequences
        for _ in range(step.iterations):
            before, self.newest, self.entered = self.entered or self.newest, [], []
            for k, size in enumerate(sizes):
                covered = before[-(-(k + 1) * len(before) // len(sizes)) - 1]
                self.newest.append(len(self.passes))
                make = partial(inference.decode, size, each * size, 1)
                self._enter(DECODE, (size, 1), (step, size), make, covered)

    def _enter(
        self,
        work: str,
        shape: tuple[int, int],
        key: tuple[object, ...],
        make: Callable[[int], tuple[Kernel, ...]],
        after: int | None,
    ) -> None:
        """A pass of (sequences, tokens of each); *make* makes its kernels in a stage, once for all of its *key*."""
        if key not in self.made:
            self.made[key] = tuple(make(stage) for stage in range(self.inference.rollout.pp))
        nbytes = float(ELEMENT * shape[0] * shape[1] * self.inference.job.model.hidden)
        self.passes.append(EnginePass(work, shape[0], self.made[key], nbytes, after))


def circulation(inference: Inference, steps: Iterable[Prompts | Iterations], samples: int) -> tuple[EnginePass, ...]:
    """All passes of an engine that goes through *steps* and then reads its *samples* for their scores."""
    queue, rollout = _EngineQueue(inference), inference.rollout
    for step in steps:
        if isinstance(step, Prompts):
            queue.prompts(step)
        else:
            queue.decode(step)
    queue.newest = []
    for _ in range(rollout.scored_by):
        queue.prompts(Prompts(samples, rollout.length), scores=True)
    return tuple(queue.passes)


def _sizes(sequences: int, parts: int) -> Iterator[int]:
    """*sequences* as evenly as it goes in *parts*, of which none is empty.

    >>> list(_sizes(10, 4)), list(_sizes(2, 4))
    ([2, 3, 2, 3], [1, 1])
    """
    parts = min(sequences, parts)
    yield from (sequences * (k + 1) // parts - sequences * k // parts for k in range(parts))


def stage_tasks(passes: Sequence[EnginePass], way: Messages, stage: int, stages: int) -> tuple[Task, ...]:
    """The tasks of one stage: its passes, each with the message before and behind it; the last one sends tokens back,
    to each pass that begins with them."""
    last, made = stage == stages - 1, dict[tuple[object, ...], Template]()
    begins: dict[int, list[int]] = {}
    for number, one_pass in enumerate(passes):
        if one_pass.after is not None:
            begins.setdefault(one_pass.after, []).append(number)
    tasks = []
    for number, p in enumerate(passes):
        waits = p.after is not None if stage == 0 else True
        key = p.work, id(p.kernels), waits
        if key not in made:
            before = [Wait(RETURNED if stage == 0 else ACTIVATION)] if waits else []
            sent = [] if last else [Send("activation", "pp", way, p.nbytes, ACTIVATION)]
            made[key] = Template.of(p.work, 0, [*before, *p.kernels[stage], *sent])
        tasks.append(Task(made[key], number))
        for waiting in begins.get(number, ()) if last else ():
            back = RETURNED, p.work, p.sequences
            if back not in made:
                made[back] = Template(p.work, 0, (Send("token", "pp", way, TOKEN * p.sequences, RETURNED),))
            tasks.append(Task(made[back], waiting))
    return tuple(tasks)


def seconds(passes: Sequence[EnginePass], message: Callable[[float], float], stages: int) -> float:
    """Seconds of all *passes*, nothing being shared: each stage does its part of a pass once it is done with the pass
    before it, and once what the stage before has made has arrived. *message* is the time of a message, by its bytes."""
    free, back = [0.0] * stages, list[float]()
    spent = {id(p.kernels): [_alone(kernels) for kernels in p.kernels] for p in passes}
    for p in passes:
        at = 0.0 if p.after is None else back[p.after]
        for stage, own in enumerate(spent[id(p.kernels)]):
            free[stage] = at = max(at, free[stage]) + own
            at += message(p.nbytes) if stage < stages - 1 else message(TOKEN * p.sequences)
        back.append(at)
    return max(free)


def _alone(kernels: Iterable[Instruction]) -> float:
    return sum(k.seconds for k in kernels if isinstance(k, Kernel))
