"""Everything that a run leaves behind in a directory."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainsim.figures import quick_import

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trainsim.result.result import Result

PICTURES: Mapping[str, Mapping[str, Any]] = {
    "png": {"dpi": 110, "pil_kwargs": {"compress_level": 1}},
    "svg": {"metadata": {"Date": None}},
}
"""How each format is written: quickly, and the same bytes every time."""


def save(result: Result, directory: Path, *, beside: bool = False) -> tuple[Path, ...]:
    """Write result.json, gantt.png, gantt.svg, trace.json.gz and report.html; the paths, in that order.

    *beside* is for a process that ends after it: the trace and the SVG are written in processes of their own while
    this one draws (where processes can be forked), and matplotlib is imported without its documentation.
    """
    directory.mkdir(parents=True, exist_ok=True)
    data, trace, page = (directory / name for name in ("result.json", "trace.json.gz", "report.html"))
    pictures = [directory / f"gantt.{kind}" for kind in PICTURES]
    data.write_text(json.dumps(result.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    with _beside(partial(result.to_chrome, trace), fork=beside):
        _draw(result, pictures, beside=beside)
        _write_page(result, page, pictures[0])
    return (data, *pictures, trace, page)


def _draw(result: Result, pictures: Sequence[Path], *, beside: bool) -> None:
    first, *others = pictures
    with quick_import() if beside else nullcontext():
        figure = result.gantt()
    with _beside(partial(save_pictures, figure, others), fork=beside):
        save_pictures(figure, [first])


def save_pictures(figure: Figure, paths: Iterable[Path]) -> None:
    """Write *figure* to each of *paths*, whose endings are keys of PICTURES."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "trainsim", "svg.fonttype": "none"}):
        for path in paths:
            kind = path.suffix.removeprefix(".")
            figure.savefig(path, format=kind, **PICTURES[kind])


def _write_page(result: Result, path: Path, picture: Path) -> None:
    from trainsim.report.html import page

    path.write_text(page(result, picture=picture.read_bytes()), encoding="utf-8")


@contextmanager
def _beside(job: Callable[[], object], *, fork: bool) -> Iterator[None]:
    """Do *job* in a fork of this process while the body runs; here, if that is not possible or did not work."""
    child = _forked(job) if fork and hasattr(os, "fork") else None
    try:
        yield
    finally:
        done = child is not None and os.waitpid(child, 0)[1] == 0
    if not done:
        job()


def _forked(job: Callable[[], object]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of numpy: the child does not use them
        child = os.fork()
    if child == 0:
        status = 1
        try:
            job()
            status = 0
        finally:
            os._exit(status)
    return child
