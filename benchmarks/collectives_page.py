"""What docs/collectives.md shows: the table of errors, and all-reduces of some machines by size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.collectives import SIZES, Log, logs, median_error
from trainsim.collectives import factor

SHOWN = {
    "a100-sxm4-40gb-1x8-all-reduce": "8 A100",
    "h100-sxm5-80gb-1x8-all-reduce-auto-nvls-at-large": "8 H100",
    "b200-sxm-1x8-all-reduce": "8 B200",
    "mi300x-1x8-all-reduce-2": "8 MI300X",
    "h100-sxm5-80gb-2x8-all-reduce-auto-nvlstree-at-large": "2 x 8 H100, InfiniBand",
    "h100-sxm5-80gb-8x8-all-reduce-auto": "8 x 8 H100, InfiniBand",
    "b200-sxm-4x8-all-reduce": "4 x 8 B200, EFA",
    "a100-sxm4-80gb-2x8-all-reduce": "2 x 8 A100, EFA (p4de)",
}
"""Logs in the picture, with what is written over them."""


def table() -> str:
    """A row per place and half of the machines."""
    lines = ["| | " + " | ".join(SIZES) + " |", "|---|" + "--:|" * len(SIZES)]
    for where, far in (("within a node", False), ("between nodes", True)):
        for half, called in (("fit", "fitted"), ("score", "not fitted")):
            some = [log for log in logs() if log.clean and log.far is far and log.said["half"] == half]
            lines.append(f"| {where}, {called} | " + " | ".join(_cells(some)) + " |")
    return "\n".join(lines)


def _cells(some: Iterable[Log]) -> Iterable[str]:
    for least, below in SIZES.values():
        median, ninth, number = median_error(some, least, below)
        yield f"{median:.1%}, {ninth:.0%} ({number})".replace("%", " %")


def picture() -> Any:
    """A matplotlib Figure: bus bandwidth by size, measured as dots and predicted as a line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6.2), layout="constrained")
    by_name = {log.name: log for log in logs()}
    for place, (name, title) in zip(figure.subplots(2, 4).flat, SHOWN.items(), strict=True):
        log = by_name[name]
        sizes = sorted(log.seconds)
        moved = factor(log.said["operation"], len(log.ranks)) / 1e9
        place.plot(sizes, [moved * n / log.predicted(n) for n in sizes], color="#2b6cb0", label="predicted")
        place.plot(sizes, [moved * n / log.seconds[n] for n in sizes], "o", color="#c05621", ms=3.5, label="measured")
        place.set(title=title, ylim=(0, None))
        place.set_xscale("log", base=2)
        place.set_xticks([2**k for k in (10, 20, 30)], ["1 KiB", "1 MiB", "1 GiB"])
        place.grid(alpha=0.3)
    figure.axes[0].legend(loc="upper left", frameon=False)
    figure.supylabel("bus bandwidth, GB/s")
    figure.supxlabel("buffer of an all-reduce")
    return figure
