"""What a piece of work costs on a GPU that does nothing else."""

from __future__ import annotations

from typing import NamedTuple


class Cost(NamedTuple):
    """``seconds`` alone, and the shares of the SMs and of the memory bandwidth it takes at that speed (0 to 1)."""

    seconds: float
    sm: float
    hbm: float
