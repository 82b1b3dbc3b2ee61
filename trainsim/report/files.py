"""Everything that a run leaves behind in a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainsim.result import Result

PICTURES = {"png": {"dpi": 110, "pil_kwargs": {"compress_level": 1}}, "svg": {"metadata": {"Date": None}}}
"""How each format is written: quickly, and the same bytes every time."""


def save(result: Result, directory: Path) -> tuple[Path, ...]:
    """Write result.json, gantt.png, gantt.svg, trace.json.gz and report.html; the paths, in that order."""
    from matplotlib import rc_context

    from trainsim.report.html import page

    directory.mkdir(parents=True, exist_ok=True)
    data = directory / "result.json"
    data.write_text(json.dumps(result.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    figure = result.gantt()
    paths = [data]
    with rc_context({"svg.hashsalt": "trainsim", "svg.fonttype": "none"}):
        for kind, options in PICTURES.items():
            paths.append(directory / f"gantt.{kind}")
            figure.savefig(paths[-1], format=kind, **options)
    paths.append(result.to_chrome(directory / "trace.json.gz"))
    paths.append(directory / "report.html")
    paths[-1].write_text(page(result, picture=paths[1].read_bytes()), encoding="utf-8")
    return tuple(paths)
