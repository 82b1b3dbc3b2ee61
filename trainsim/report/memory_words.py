"""What pictures and tables of memory say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainsim.analysis.memory import MemoryUse, StageMemory, at_peak
from trainsim.units import format_bytes, format_time

if TYPE_CHECKING:
    from trainsim.analysis.analysis import Analysis

CLOSE = 0.45
"""Of the capacity: if no stage holds more, pictures end above what is held and the capacity is outside."""


def peak_words(result: Analysis, stage: StageMemory) -> str:
    """How much a stage holds at most, when, and what takes most of it."""
    return (
        f"peak {format_bytes(stage.peak)} ({stage.peak / result.memory.capacity:.0%}) at "
        f"{format_time(stage.peak_at_s)}, {at_peak(result.lanes, stage)}; largest: {stage.largest}, {format_bytes(stage.part(stage.largest))}"  # noqa: E501
    )


def verdict(use: MemoryUse) -> str:
    """Whether GPUs have room, and how full the fullest is. The allocator gives its slack back before it fails."""
    state = "DOES NOT FIT" if not use.gpus_fit else "fits" if use.peak <= use.capacity else "fits barely"
    least = f" ({format_bytes(use.needed)} without the allocator's slack)" if state == "fits barely" else ""
    return f"{state}: peak {format_bytes(use.peak)} of {format_bytes(use.capacity)}{least} on rank {use.peak_rank}"


def room(use: MemoryUse) -> str:
    """Where the capacity comes from: the memory of the GPU, what programs see of it, what others keep."""
    parts = [f"a GPU has {format_bytes(use.nominal)}, of which programs can use {format_bytes(use.usable)}"]
    parts += [f"other processes hold {format_bytes(use.reserved)} of that (reserved_memory)"] * (use.reserved > 0)
    return "; ".join(parts) if use.nominal else ""


def verdicts(use: MemoryUse) -> tuple[str, ...]:
    """Of the GPUs, and of hosts and drives if they hold anything."""
    beside = (
        f"{'fits' if store.fits else 'DOES NOT FIT'}: {store.name} {format_bytes(store.peak_per_node)} of "
        f"{format_bytes(store.capacity)} on the fullest node"
        for store in (use.host, use.nvme)
        if store.peak_per_node
    )
    return verdict(use), *beside


def short_verdict(use: MemoryUse) -> str:
    """Whether all fits, in a word or few."""
    if use.fits:
        return "fits" if use.peak <= use.capacity else "fits barely"
    full = [store.name for store in (use.host, use.nvme) if not store.fits]
    return "does not fit" if not use.gpus_fit else f"{' and '.join(full)} too small"


def top_of(use: MemoryUse) -> float:
    """The upper end of a picture, bytes: the capacity is in it unless little of it is used, and above it what others
    keep."""
    return max(use.peak, use.usable if use.peak > CLOSE * use.capacity else 0.0) * 1.06
