"""What tools call collectives and algorithms, and which collective a pair of rates belongs to."""

from __future__ import annotations

import re

ALGORITHMS = {
    "ring": "ring",
    "tree": "tree",
    "nvls": "nvls",
    "nvlstree": "nvls_tree",
    "collnetdirect": "collnet",
    "pat": "pat",
}
"""Algorithms that can be forced (NCCL_ALGO) and are known here."""
NOT_MODELLED = ("hypercube",)
"""What nccl-tests has that is no collective of NCCL."""
SPELLINGS = {
    "all_reduce": r"all[_-]?reduce",
    "all_gather": r"all[_-]?gather",
    "reduce_scatter": r"reduce[_-]?scatter",
    "all_to_all": r"all[_-]?to?[_-]?all(?:v)?|a2a",
    "broadcast": r"broad?cast",
    "shift": r"send[_-]?recv|point[_-]?to[_-]?point|p2p",
    "hypercube": r"hypercube",
    "reduce": r"(?<![a-z])reduce(?=_perf)",
    "gather": r"(?<![a-z])gather(?=_perf)",
    "scatter": r"(?<![a-z])scatter(?=_perf)",
}
"""In the order in which they are looked for: the longer name before one that is a part of it."""
_PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in SPELLINGS.items()}
CLOSE = 0.01


def operation_in(text: str) -> str | None:
    """The collective that *text* names first.

    >>> operation_in("mpirun -np 8 alltoall_perf -b 8"), operation_in("nccl_ReduceScatter.log"), operation_in("x.log")
    ('all_to_all', 'reduce_scatter', None)
    """
    found = {name: match.start() for name, pattern in _PATTERNS.items() if (match := pattern.search(text))}
    return min(found, key=lambda name: found[name], default=None)


def operation_of_rates(ratio: float, ranks: int, *, reduces: bool) -> str | None:
    """The collective whose bus rate is *ratio* times the rate of its buffer over so many *ranks* (0: not known).

    >>> operation_of_rates(1.75, 8, reduces=True), operation_of_rates(0.875, 8, reduces=True)
    ('all_reduce', 'reduce_scatter')
    >>> operation_of_rates(0.875, 8, reduces=False) is None  # a gather or an exchange of all with all
    True
    """
    if ratio > 1 + CLOSE:
        return "all_reduce"
    part = (ranks - 1) / ranks if ranks else ratio
    return "reduce_scatter" if reduces and ratio < 1 - CLOSE and abs(ratio - part) < CLOSE else None
