"""
Continuous batching, iteration by iteration and without a clock: which sequences an inference engine runs at once.

Sequences are admitted in order as long as there are blocks of the key-value cache for their prompts, and whenever some
can be admitted their prompts go first. Each then gains one token per iteration and a block when the last one is full.
Where no block is left, those that were admitted last give up theirs; what they had is computed again, as a prompt, when
they are admitted anew: vLLM's preemption by recomputation (Kwon et al. 2023, arXiv 2309.06180, section 4.5).
A contiguous cache is the same with one block per sequence, as long as the longest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from trainsim.contracts.rollout import Rollout


class Prompts(NamedTuple):
    """``sequences`` whose ``tokens`` (each) go through the model at once; ``again``: they have been there before."""

    sequences: int
    tokens: int
    again: bool = False


class Iterations(NamedTuple):
    """``iterations`` in which ``sequences`` gain a token each. ``read`` are the tokens of the cache that all of them
    read together, and ``unused`` the tokens for which blocks have room and that are not there yet, summed likewise."""

    iterations: int
    sequences: int
    read: int
    unused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How one engine generates its samples: prompts and stretches of iterations in their order. ``running`` is the most
    that ran at once, ``blocks`` the most that they held, ``waves`` how often new ones were admitted, ``preemptions``
    how many were interrupted."""

    steps: tuple[Prompts | Iterations, ...]
    running: int
    blocks: int
    waves: int
    preemptions: int

    @property
    def iterations(self) -> int:
        """Iterations of decoding."""
        return sum(step.iterations for step in self.steps if isinstance(step, Iterations))

    @property
    def unused(self) -> float:
        """Tokens for which the blocks of a running sequence have room without having them, in the mean."""
        stretches = [step for step in self.steps if isinstance(step, Iterations)]
        count = sum(step.iterations * step.sequences for step in stretches)
        return sum(step.unused for step in stretches) / count if count else 0.0


@dataclass
class _Cohort:
    """Running sequences of one length, tokens; they have the same number of iterations before them."""

    count: int
    length: int
    left: int


def batching(rollout: Rollout, samples: int, blocks: int) -> Batching:
    """The iterations of an engine with room for so many *blocks*, which must be enough for one sequence.

    >>> ask = Rollout(prompt_length=32, response_length=17, samples=4)
    >>> for step in batching(ask, 4, 100).steps: print(step)
    Prompts(sequences=4, tokens=32, again=False)
    Iterations(iterations=16, sequences=4, read=2592, unused=480)
    >>> batching(ask, 4, 6).waves
    2
    """
    return _Engine(rollout, samples, blocks).run()


class _Engine:
    """The state of an engine between two iterations."""

    def __init__(self, rollout: Rollout, samples: int, blocks: int):
        self.rollout, self.samples, self.total, self.free = rollout, samples, blocks, blocks
        self.unit = rollout.unit
        self.running: list[_Cohort] = []
        self.interrupted: list[_Cohort] = []
        self.steps: list[Prompts | Iterations] = []
        self.most = self.held = self.waves = self.preemptions = 0

    def run(self) -> Batching:
        """All samples, to their end."""
        while self.samples or self.interrupted or self.running:
            self._admit()
            if self.running:
                self._make_room()
                self._decode()
        return Batching(steps=tuple(self.steps), running=self.most, blocks=self.held, waves=self.waves,
                        preemptions=self.preemptions)  # fmt: skip

    def _admit(self) -> None:
        """Those that fit: the interrupted first."""
        while self.interrupted:
            first = self.interrupted[0]
            count = self._room(first.count, first.length)
            if not count:
                return
            first.count -= count
            self._start(_Cohort(count, first.length, first.left), again=True)
            if first.count:
                return
            self.interrupted.pop(0)
        if count := self._room(self.samples, self.rollout.prompt_length):
            self.samples -= count
            self.waves += 1
            self._start(_Cohort(count, self.rollout.prompt_length, self.rollout.response_length - 1), again=False)

    def _room(self, count: int, length: int) -> int:
        """How many of *count* sequences of *length* tokens can be admitted."""
        fits = min(count, self.free // self._blocks(length))
        if self.rollout.max_num_seqs is not None:
            fits = min(fits, self.rollout.max_num_seqs - sum(c.count for c in self.running))
        return fits

    def _start(self, cohort: _Cohort, *, again: bool) -> None:
        """Their tokens go through the model, which gives each the next token."""
        self.steps.append(Prompts(cohort.count, cohort.length, again))
        self.free -= cohort.count * self._blocks(cohort.length)
        self.running.append(cohort)
        self._note()
        self._finish()

    def _make_room(self) -> None:
        """A block for each sequence whose last one is full; as many of the youngest as it takes give up theirs."""
        while True:
            need = sum(c.count for c in self.running if c.length % self.unit == 0)
            if need <= self.free:
                break
            youngest = self.running[-1]
            each = self._blocks(youngest.length) + (youngest.length % self.unit == 0)
            count = min(youngest.count, -(-(need - self.free) // each))
            self.free += count * self._blocks(youngest.length)
            youngest.count -= count
            self.preemptions += count
            # The token that it was about to read is a part of what it has when it comes back.
            self.interrupted.insert(0, _Cohort(count, youngest.length + 1, youngest.left - 1))
            if not youngest.count:
                self.running.pop()
        self.free -= need
        self._note()

    def _decode(self) -> None:
        """Iterations until a sequence is done or needs a block."""
        unit = self.unit
        steps = min(min(c.left, unit - c.length % unit) for c in self.running)
        count = sum(c.count for c in self.running)
        read = sum(c.count * (steps * c.length + steps * (steps + 1) // 2) for c in self.running)
        room = sum(c.count * steps * self._blocks(c.length + 1) * unit for c in self.running)
        for cohort in self.running:
            cohort.length += steps
            cohort.left -= steps
        before = self.steps[-1] if self.steps else None
        stretch = Iterations(steps, count, read, room - read)
        if isinstance(before, Iterations) and before.sequences == count:
            self.steps[-1] = Iterations(before.iterations + steps, count, before.read + read,
                                     before.unused + stretch.unused)  # fmt: skip
        else:
            self.steps.append(stretch)
        self._finish()

    def _finish(self) -> None:
        """Sequences that have all their tokens give up their blocks."""
        self.free += sum(c.count * self._blocks(c.length) for c in self.running if not c.left)
        self.running = [c for c in self.running if c.left]

    def _blocks(self, length: int) -> int:
        return -(-length // self.unit)

    def _note(self) -> None:
        self.most = max(self.most, sum(c.count for c in self.running))
        self.held = max(self.held, self.total - self.free)


def cut_stretches(steps: tuple[Prompts | Iterations, ...], parts: int) -> Iterator[Prompts | Iterations]:
    """The same with long stretches cut, so that about *parts* of them show how reading the cache takes longer."""
    most = max(1, sum(step.iterations for step in steps if isinstance(step, Iterations)) // parts)
    for step in steps:
        if isinstance(step, Iterations):
            yield from _cut(step, most)
        else:
            yield step


def _cut(stretch: Iterations, most: int) -> Iterator[Iterations]:
    """Pieces of a stretch of sequences that all grow by a token per iteration."""
    pieces = -(-stretch.iterations // most)
    n, b = stretch.iterations, stretch.sequences
    first = (stretch.read - b * n * (n + 1) // 2) / n  # tokens that are there before the first iteration
    done, read, unused = 0, 0, 0
    for k in range(1, pieces + 1):
        until = n * k // pieces
        whole = round(first * until + b * until * (until + 1) / 2) if k < pieces else stretch.read
        spare = stretch.unused * until // n
        yield Iterations(until - done, b, whole - read, spare - unused)
        done, read, unused = until, whole, spare
