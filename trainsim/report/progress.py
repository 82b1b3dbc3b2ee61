"""A progress bar on standard error, for what takes more than a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(title: str, total: int, wanted: bool | None = None) -> Iterator[Callable[[], None]]:
    """Shows a bar while the body runs (None: where somebody looks at it); gives the function that advances it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    shown = console.is_terminal if wanted is None else wanted
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not shown) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)
