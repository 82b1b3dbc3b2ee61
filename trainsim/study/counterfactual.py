"""The same system with one nuisance taken away: free collectives, instant messages, equal stages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from trainsim.analysis.kinds import COMMUNICATION
from trainsim.contracts.exact import tick_for
from trainsim.contracts.instructions import Instruction, Kernel, Program, Task, Template
from trainsim.contracts.system import Communicator, Pattern, System
from trainsim.engine import run
from trainsim.fold import fold, prune

NOT_WORK = frozenset({*COMMUNICATION, "delay"})
"""Kinds of kernels that are no work of the rank itself."""
Change = Callable[[System], System]


def seconds(system: System, longest: float) -> float:
    """Seconds that *system* takes; no longer than *longest*."""
    return run(fold(prune(system)), tick=tick_for(longest)).duration


def work(system: System) -> float:
    """Seconds of work of the mean rank: its kernels alone, one after the other."""
    each = [
        sum(_seconds(task.template) for tasks in program.chains.values() for task in tasks)
        for program in system.programs
    ]
    return float(np.bincount(system.program_of, minlength=len(each)) @ np.array(each) / system.ranks)


def without_messages(system: System) -> System:
    """Messages between stages take no time."""
    return _without(system, lambda communicator: communicator.is_message, {"pp"})


def without_collectives(system: System) -> System:
    """Collectives take no time and use nothing; their ranks still wait for each other."""
    return _without(system, lambda communicator: not communicator.is_message, set(COMMUNICATION) - {"pp"})


def balanced(system: System) -> System:
    """Every pass takes as long as its like of the mean stage, and every update as long as the mean one."""
    total: defaultdict[tuple[int, int, str], float] = defaultdict(float)
    passes: defaultdict[tuple[int, int, str], set[int]] = defaultdict(set)
    for program in system.programs:
        for task in program.chains["compute"]:
            key = program.stage, task.template.chunk, task.template.work
            total[key] += _seconds(task.template)
            passes[key].add(task.microbatch)
    each = {key: total[key] / len(passes[key]) for key in total}  # delayed ranks have programs of their own
    own = defaultdict(list)
    for (_, _, name), mean in each.items():
        own[name].append(mean)
    factor = {key: _mean(own[key[2]]) / mean if mean else 1.0 for key, mean in each.items()}

    def scaled(program: Program, template: Template) -> Sequence[Instruction]:
        by = factor.get((program.stage, template.chunk, template.work), 1.0)
        return [_longer(i, by) for i in template.instructions]

    return _mapped(system, scaled)


def _without(system: System, which: Callable[[Communicator], bool], kinds: set[str]) -> System:
    """Operations of some communicators, and kernels that stand for them, take no time."""
    free = {
        name: replace(communicator, patterns={op: _instant(pattern) for op, pattern in communicator.patterns.items()})
        for name, communicator in system.communicators.items()
        if which(communicator)
    }

    def kept(program: Program, template: Template) -> Sequence[Instruction]:
        return [i for i in template.instructions if not (isinstance(i, Kernel) and i.kind in kinds)]

    return _mapped(replace(system, communicators={**system.communicators, **free}), kept)


def _instant(pattern: Pattern) -> Pattern:
    none = np.zeros(0, np.int64)
    nothing = np.zeros_like(pattern.latency)
    return replace(
        pattern, factor=nothing, latency=nothing, ramp=nothing, chain=nothing, use_group=none, use_resource=none,
        use_amount=np.zeros(0), use_hold=np.zeros(0, bool),
    )  # fmt: skip


def _mapped(system: System, change: Callable[[Program, Template], Sequence[Instruction]]) -> System:
    """Every template of the compute chains with other instructions, and without memory."""
    programs = []
    for program in system.programs:
        made: dict[int, Template] = {}
        tasks = []
        for template, microbatch in program.chains["compute"]:
            if id(template) not in made:
                made[id(template)] = replace(template, instructions=tuple(change(program, template)), holds=())
            tasks.append(Task(made[id(template)], microbatch))
        programs.append(replace(program, chains={**program.chains, "compute": tuple(tasks)}))
    return replace(system, programs=tuple(programs))


def _longer(i: Instruction, factor: float) -> Instruction:
    return replace(i, seconds=i.seconds * factor) if isinstance(i, Kernel) and i.kind not in NOT_WORK else i


def _seconds(template: Template) -> float:
    return sum(i.seconds for i in template.instructions if isinstance(i, Kernel) and i.kind not in NOT_WORK)


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)
