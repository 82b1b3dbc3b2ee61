"""Whose traces a command writes: ``--ranks``."""

from __future__ import annotations

from collections.abc import Sequence

from trainsim.errors import ScenarioError


def check_ranks(ranks: str | None, kinds: Sequence[str], *, several: bool) -> None:
    """Raise ScenarioError if *ranks* are named and no file of *kinds* has ranks, or there are *several* jobs."""
    if ranks is not None and several:
        raise ScenarioError(f"--ranks {ranks}: is of one scenario, and several jobs are run here")
    if ranks is not None and not {"trace", "whole-trace", "kineto"} & set(kinds):
        raise ScenarioError(
            f"--ranks {ranks}: says whose traces are written, and none are; add --files kineto or trace"
        )


def ranks_in(words: str, count: int) -> tuple[int, ...]:
    """The ranks that *words* name, of a job with *count*. Raises ScenarioError.

    >>> ranks_in("0,4-6", 8), ranks_in("all", 3)
    ((0, 4, 5, 6), (0, 1, 2))
    """
    if words.strip() == "all":
        return tuple(range(count))
    out: dict[int, None] = {}
    for word in words.split(","):
        first, dash, last = (part.strip() for part in word.partition("-"))
        if not first.isdecimal() or not (last.isdecimal() if dash else True):
            raise ScenarioError(
                f"--ranks {words}: {word.strip()!r} is not a rank; expected numbers such as 0,8,16-23, or all"
            )
        begin, end = int(first), int(last or first)
        if not begin <= end < count:
            what = "ends before it begins" if end < begin else f"is not there: this job has ranks 0 to {count - 1}"
            raise ScenarioError(f"--ranks {words}: {word.strip()} {what}")
        out |= dict.fromkeys(range(begin, end + 1))
    return tuple(out)
