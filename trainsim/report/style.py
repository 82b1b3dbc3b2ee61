"""Colours, hatches and words of all pictures: one look everywhere, readable in grey as well.

The lightness of neighbours differs (forward light, backward middle, recomputation dark) and communication is hatched,
so that nothing is told by hue alone.
"""

from __future__ import annotations

from typing import NamedTuple

from trainsim.units import seconds as seconds
from trainsim.units import seconds_of as seconds_of
from trainsim.units import signed_seconds as signed_seconds


class Look(NamedTuple):
    """Fill, colour of hatch and text on it, hatch of matplotlib, and what it stands for."""

    fill: str
    ink: str
    hatch: str
    title: str


LOOKS = {
    "forward": Look("#b7dfa6", "#16380b", "", "forward"),
    "backward": Look("#6aa3d5", "#04203a", "", "backward"),
    "input": Look("#86b8e6", "#04203a", "", "inputs (I)"),
    "weight": Look("#2a8c7e", "#ffffff", "", "weights (W)"),
    "recompute": Look("#2f5f95", "#ffffff", "", "recompute"),
    "tp": Look("#fdc37b", "#a85400", "/////", "tensor parallel (tp)"),
    "cp": Look("#f7a8a0", "#8c2f26", "/////", "context parallel (cp)"),
    "ep": Look("#e8a5d8", "#7a2468", "/////", "expert parallel (ep)"),
    "pp": Look("#c9b3e6", "#54318a", "\\\\\\\\\\", "pipeline messages (pp)"),
    "dp": Look("#f4a582", "#8f3514", "xxxx", "data parallel (dp)"),
    "gather": Look("#fdd9a8", "#b35806", "/////", "parameters gathered (dp)"),
    "exposed": Look("#fbdcd9", "#8f3514", "", "a pass waits for dp"),
    "offload": Look("#c5b79b", "#5b4d2c", "-----", "offload"),
    "optimizer": Look("#222222", "#ffffff", "", "optimizer"),
    "host": Look("#d9d9d9", "#6b6b6b", ".....", "host"),
    "delay": Look("#e3342f", "#ffffff", "", "delay (what-if)"),
    "other": Look("#a9a9a9", "#333333", "", "other"),
    "chunk": Look("#00000040", "#000000", "", "later chunk"),
    "bubble": Look("#f0f0f0", "#c4c4c4", "", "idle: waiting"),
}
"""How each kind of span is drawn."""

PARTS = {
    "compute": "#6aa3d5",
    "recompute": "#2f5f95",
    "tp": "#fdae61",
    "cp": "#f28e82",
    "ep": "#dd86c8",
    "pp": "#a988d6",
    "dp": "#e66a3c",
    "offload": "#a8966c",
    "optimizer": "#4a4a4a",
    "bubble": "#d0d0d0",
    "other": "#8c8c8c",
}
"""Fills of the rows of a breakdown."""

MEMORY = {
    "weights": "#3b6ea5",
    "gradients": "#7fb2dc",
    "optimizer": "#4a4a4a",
    "gathered": "#e8737a",
    "activations": "#8cc57a",
    "logits": "#4f9a5b",
    "buffers": "#c9b3e6",
    "temporary": "#fdc37b",
    "slack": "#e3e3e3",
    "framework": "#bdbdbd",
}
"""Fills of the categories of memory."""

CONVENTION = (
    "FLOPs by Megatron-LM's formula, which counts attention in full although half of it is masked, over the "
    "datasheet's peak"
)
"""What MFU and HFU are."""
CRITICAL = "#c0142b"
GIB = 2.0**30


def count(value: float) -> str:
    """A large number for people.

    >>> count(176247271424), count(1234.0), count(12)
    ('176.2 B', '1.2 k', '12')
    """
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:g}"


def counted(number: int, what: str) -> str:
    """
    >>> counted(1, "class"), counted(2, "class"), counted(1200, "stage")
    ('1 class', '2 classes', '1,200 stages')
    """
    ending = "" if number == 1 else "es" if what.endswith("s") else "s"
    return f"{number:,} {what}{ending}"


def size(value: float) -> str:
    """Bytes for people, in binary units.

    >>> size(80 * 2**30), size(1536)
    ('80.0 GiB', '1.5 KiB')
    """
    for unit, step in (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)):
        if abs(value) >= step:
            return f"{value / step:.1f} {unit}"
    return f"{value:.0f} B"
