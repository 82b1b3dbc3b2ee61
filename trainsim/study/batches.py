"""Trials handed out in batches: small at first, then as long as is still no wait, so that handing out costs little."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from trainsim.study.attempt import Batch, OtherCode, Prepared, attempt_all
from trainsim.study.code import code_digest
from trainsim.study.trial import Failure
from trainsim.study.work import Answers, StudyWork

T = TypeVar("T")

BATCH = 0.25
"""Seconds that a batch should take: long beside a message to a process, and short beside the patience of people."""
GROWTH = 4
"""By how much a batch is larger than the one before at most: the first points are not always like the others."""
AHEAD = 2
"""Batches per process that are handed out, so that none waits for the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Processes: ``submit`` hands a function and its argument to one of them, ``stop`` ends them at once. ``deaths``
    are errors which say that a process died."""

    submit: Callable[[Callable[[Any], Any], Any], Future[Any]]
    workers: int
    stop: Callable[[], None]
    deaths: tuple[type[BaseException], ...] = (BrokenExecutor,)


def in_batches(pool: Pool, work: StudyWork[T]) -> Answers[T]:
    """The answers to *work* from the processes of *pool*, as they come. A process that dies costs the trial that it
    died of. On an interrupt what is finished still comes, before it goes on."""
    hand_out = _HandingOut(pool, work)
    try:
        while hand_out.left:
            hand_out.fill()
            yield from hand_out.finished(wait(hand_out.flying, return_when=FIRST_COMPLETED).done)
    except KeyboardInterrupt:
        yield from hand_out.finished([future for future in hand_out.flying if future.done()])
        raise
    finally:
        if hand_out.flying:
            pool.stop()


def through(pool: Callable[[StudyWork[T]], AbstractContextManager[Pool]], work: StudyWork[T]) -> Answers[T]:
    """The answers to *work* from a *pool* that is open as long as it is needed; none is opened for nothing."""
    if work.todo:
        with pool(work) as opened:
            yield from in_batches(opened, work)


class _HandingOut(Generic[T]):
    """What is to be handed out, what is under way, and what was when a process died: that is tried one by one."""

    def __init__(self, pool: Pool, work: StudyWork[T]):
        self.pool, self.work, self.code = pool, work, code_digest()
        self.queue = deque(grouped(work.todo))
        self.flying: dict[Future[Any], list[Prepared]] = {}
        self.suspects: deque[Prepared] = deque()
        self.alone = False
        self.size = 1

    @property
    def left(self) -> bool:
        return bool(self.queue or self.flying or self.suspects)

    def fill(self) -> None:
        """Hand out as much as keeps all busy; suspects alone, so that it is seen who it was."""
        if not self.suspects:
            self.alone = False
            while self.queue and len(self.flying) < AHEAD * self.pool.workers:
                share = max(len(self.queue) // (AHEAD * self.pool.workers), 1)
                self._hand(self.queue, min(self.size, share))
        elif not self.flying:
            self.alone = True
            self._hand(self.suspects, 1)

    def _hand(self, source: deque[Prepared], count: int) -> None:
        batch = [source.popleft() for _ in range(count)]
        tasks = [prepared.task for prepared in batch]
        self.flying[self.pool.submit(attempt_all, Batch(tasks, self.work.keep, self.code))] = batch

    def finished(self, futures: Sequence[Future[Any]] | set[Future[Any]]) -> Iterator[tuple[Prepared, T | Failure]]:
        """The answers of *futures* that have ended."""
        for future in futures:
            batch = self.flying.pop(future)
            try:
                answers, seconds = future.result()
            except OtherCode:
                raise
            except Exception as error:
                if self.alone:
                    yield batch[0], self._reason(error)
                else:
                    self.suspects.extend(batch)
                continue
            wanted = int(BATCH / max(seconds / len(batch), 1e-6))
            self.size = max(1, min(wanted, GROWTH * self.size))
            yield from zip(batch, answers, strict=True)

    def _reason(self, error: Exception) -> Failure:
        name = type(error).__name__
        died = isinstance(error, self.pool.deaths)
        text = f"the process that ran it died ({name}); out of memory?" if died else f"{name}: {error}"
        return Failure(text, text, of_the_moment=True)


def grouped(todo: Sequence[Prepared]) -> list[Prepared]:
    """The trials of one machine and model one after the other, as the process that knows them is quicker with them;
    otherwise in their order."""
    groups: dict[str, list[Prepared]] = {}
    for prepared in todo:
        groups.setdefault(prepared.group, []).append(prepared)
    return [prepared for group in groups.values() for prepared in group]
