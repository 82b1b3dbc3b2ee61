"""Progress on standard error or in a notebook's cell, for what takes more than a moment."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from time import perf_counter
from typing import Any, Protocol

A_MOMENT = 2.0
"""Seconds after which somebody wants to know that work goes on."""
PATIENCE = 15.0
"""Seconds after which somebody wants to know why it takes so long."""
REFRESH = 0.2
"""Seconds between two pictures of a bar in a notebook."""


class AdvanceBar(Protocol):
    """Moves a bar on by one; ``known``: it took no time, and says nothing of how fast it goes."""

    def __call__(self, *, known: bool = False) -> None: ...


@contextmanager
def bar(title: str, total: int, wanted: bool | None = None) -> Iterator[AdvanceBar]:
    """Shows a bar while the body runs (None: where somebody looks at it); gives the function that advances it.

    A terminal shows it on standard error, a notebook in the cell, once it takes more than a moment.
    """
    if _kernel() and wanted is not False:
        cell = _NotebookBar(title, total)
        yield cell.advance
        cell.clear()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    shown = console.is_terminal if wanted is None else wanted
    columns = (
        TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"),
    )  # fmt: skip
    pace = Pace(total)
    with Progress(*columns, console=console, disable=not shown, refresh_per_second=4) as progress:
        task = progress.add_task(title, total=total, pace="")

        def advance(*, known: bool = False) -> None:
            pace.advance(known)
            progress.update(task, advance=1, pace=pace.words())

        yield advance


class Pace:
    """How fast it goes with *total* pieces of work, of which some may be known already."""

    def __init__(self, total: int):
        self.left, self.worked, self.began = total, 0, perf_counter()

    def advance(self, known: bool = False) -> None:
        """One less is left. The clock starts with the last piece that was known."""
        self.left -= 1
        if not known:
            self.worked += 1
        elif not self.worked:
            self.began = perf_counter()

    @property
    def elapsed(self) -> float:
        """Seconds of work."""
        return perf_counter() - self.began

    def words(self) -> str:
        """The rate, and how long it still takes."""
        elapsed = self.elapsed
        rest = remaining(self.worked, self.worked + self.left, elapsed)
        return ", ".join(filter(None, (rate(self.worked, elapsed), rest)))


@contextmanager
def working(title: str, why: Callable[[], str] | None = None) -> Iterator[Callable[[str], None]]:
    """Shows that work goes on, if it takes more than a moment and somebody looks at standard error; gives the function
    that says what is being done. If it takes longer than anybody likes to wait, what *why* says is a line there,
    whether somebody looks or not.

    Threads of timers do that, so that whoever works need not look at a clock.
    """
    from rich.console import Console
    from rich.status import Status

    console, timers = Console(stderr=True), list[Timer]()
    seen = console.is_terminal and not _kernel()
    status = Status(title, console=console, refresh_per_second=4)
    if seen:
        timers.append(Timer(A_MOMENT, status.start))
    if why is not None:
        timers.append(Timer(PATIENCE, lambda: console.print(why(), markup=False, highlight=False, soft_wrap=True)))
    for timer in timers:
        timer.daemon = True
        timer.start()
    try:
        yield (lambda phase: status.update(f"{title}: {phase}")) if seen else (lambda phase: None)
    finally:
        for timer in timers:
            timer.cancel()
            timer.join()
        status.stop()


def rate(done: int, elapsed: float) -> str:
    """How fast it goes, in words.

    >>> rate(10, 4.0), rate(2, 5.0), rate(0, 5.0)
    ('2.5/s', '2.5 s each', '')
    """
    if not done or not elapsed:
        return ""
    return f"{done / elapsed:.1f}/s" if done >= elapsed else f"{elapsed / done:.1f} s each"


def remaining(done: int, total: int, elapsed: float) -> str:
    """How long it still takes at this rate, in words.

    >>> remaining(10, 40, 4.0), remaining(0, 40, 4.0), remaining(1, 100, 4.0)
    ('12 s left', '', '6 min 36 s left')
    """
    if not done:
        return ""
    minutes, seconds = divmod(round(elapsed / done * (total - done)), 60)
    return f"{minutes} min {seconds} s left" if minutes else f"{seconds} s left"


def _kernel() -> bool:
    """Whether this is the cell of a notebook."""
    interactive = sys.modules.get("IPython")
    shell: Any = interactive.get_ipython() if interactive else None
    return getattr(shell, "kernel", None) is not None


class _NotebookBar:
    """A bar in the output of a cell, by nothing but IPython's display."""

    def __init__(self, title: str, total: int):
        self.title, self.total, self.done, self.pace = title, total, 0, Pace(total)
        self.began = self.drawn = perf_counter()
        self.handle: Any = None

    def advance(self, *, known: bool = False) -> None:
        self.done += 1
        self.pace.advance(known)
        now = perf_counter()
        if now - self.began > A_MOMENT and now - self.drawn > REFRESH:
            self.drawn = now
            self._show(*self._pictures())

    def clear(self) -> None:
        if self.handle:
            self._show("", "")

    def _pictures(self) -> tuple[str, str]:
        """The bar as text and as HTML."""
        text = ", ".join(filter(None, [f"{self.title} {self.done}/{self.total}", self.pace.words()]))
        return text, f"<progress value='{self.done}' max='{self.total}'></progress> {text}"

    def _show(self, text: str, html: str) -> None:
        from IPython import display

        data = {"text/plain": text, "text/html": html}
        if self.handle:
            self.handle.update(data, raw=True)
        else:
            self.handle = display.display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
