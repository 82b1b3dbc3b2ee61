"""Colours, hatches and words of all pictures: one look everywhere, readable in grey as well.

The lightness of neighbours differs (forward light, backward middle, recomputation dark) and communication is hatched,
so that nothing is told by hue alone.
"""

from __future__ import annotations

from typing import NamedTuple


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
    "exposed": Look("#fbdcd9", "#8f3514", "", "exposed communication"),
    "offload": Look("#c5b79b", "#5b4d2c", "-----", "offload"),
    "optimizer": Look("#222222", "#ffffff", "", "optimizer"),
    "host": Look("#d9d9d9", "#6b6b6b", "|||||", "host"),
    "copy": Look("#e3cfa0", "#7a5c1e", "", "copies of parameters and gradients"),
    "delay": Look("#e3342f", "#ffffff", "", "delay (what-if)"),
    "other": Look("#a9a9a9", "#333333", "", "other"),
    "prefill": Look("#f2e06a", "#4a4200", "", "prefill (rollout)"),
    "decode": Look("#d9b310", "#3a2f00", "", "decode (rollout)"),
    "scoring": Look("#a9c47f", "#23380b", ".....", "scoring (rollout)"),
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
    "prefill": "#f2e06a",
    "decode": "#d9b310",
    "scoring": "#a9c47f",
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
    "kv_cache": "#d9b310",
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
KEPT = "#d5d5d5"
GIB = 2.0**30
