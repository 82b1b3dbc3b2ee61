"""Everything that a run leaves behind in a directory."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

    from trainsim.result.result import Result

PICTURES = ("png", "svg")
"""The formats in which pictures are written."""
LARGE_SVG = 1_500_000
"""Characters of an SVG from which on its numbers lose what is behind their second decimal (0.01 points)."""


FILES = {
    "result": "result.json",
    "gantt": "gantt.png",
    "svg": "gantt.svg",
    "links": "links.png",
    "trace": "trace.json.gz",
    "kineto": "traces",
    "report": "report.html",
}
"""What a run can write: the file of each kind, or the folder where there is one per rank."""
USUAL = ("result", "gantt", "trace", "report")
"""What a run writes if nobody says what: the picture once, as pixels."""


def save(
    result: Result,
    directory: Path,
    kinds: Collection[str] = USUAL,
    *,
    whole_trace: bool = False,
    ranks: Sequence[int] | None = None,
) -> tuple[Path, ...]:
    """Write the files of *kinds* (keys of FILES); their paths, in that order.

    The trace is an excerpt where it would be large, unless *whole_trace*; it and those of Kineto are of *ranks*, or of
    a pipeline.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = {kind: directory / name for kind, name in FILES.items() if kind in kinds}
    if path := paths.get("result"):
        path.write_text(json.dumps(result.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    if path := paths.get("trace"):
        result.to_chrome(path, ranks=result.pipeline if whole_trace and ranks is None else ranks)
    if path := paths.get("kineto"):
        written = result.to_kineto(path, ranks=ranks)
        for earlier in {*path.glob("rank-*.json.gz")} - {*written}:  # whoever reads the folder would mix two runs
            earlier.unlink()
    if pictures := [paths[kind] for kind in ("gantt", "svg") if kind in paths]:
        save_pictures(result.gantt(), pictures)
    if path := paths.get("links"):
        save_pictures(result.link_chart(), [path])
    if path := paths.get("report"):
        _write_page(result, path, paths.get("gantt"))
    return tuple(paths.values())


def save_pictures(figure: Figure, paths: Iterable[Path]) -> None:
    """Write *figure* to each of *paths*, whose endings are of PICTURES: quickly, and the same bytes every time."""
    with ThreadPoolExecutor(1) as beside:  # PNG is compressed while the SVG is written
        jobs = []
        for path in paths:
            if path.suffix == ".png":
                jobs.append(beside.submit(_pixels(figure).save, path, format="png", compress_level=1))
            else:
                path.write_text(_svg(figure), encoding="utf-8")
        for job in jobs:
            job.result()


def _pixels(figure: Figure) -> Image:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())[:, :, :3])


def _svg(figure: Figure) -> str:
    from matplotlib import rc_context

    file = StringIO()
    with rc_context({"svg.hashsalt": "trainsim", "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text if len(text) < LARGE_SVG else re.sub(r"(\.\d\d)\d+", r"\1", text)


def _write_page(result: Result, path: Path, picture: Path | None) -> None:
    from trainsim.report.html import page

    path.write_text(page(result, picture=picture.read_bytes() if picture else None), encoding="utf-8")
