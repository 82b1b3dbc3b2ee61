"""The words of a breakdown, and how the kinds of spans map to them."""

from __future__ import annotations

from collections.abc import Mapping

from trainsim.contracts.instructions import EARLY, KINDS
from trainsim.contracts.rollout import WORKS

COLUMN = {kind: k for k, kind in enumerate(KINDS)}
"""The column of a kind in every array of seconds per kind."""

PASSES = frozenset({"F", "B", "I", "W"})
"""What a template's ``work`` says when it is a pass of the schedule: forward, backward, its two halves."""

BUSY = PASSES | {EARLY}
"""What a rank does between the start of a step and its end: passes, and updates that no flush precedes."""

UPDATE = "update"
"""What a template's ``work`` says when it ends a step."""

ROLLOUT = frozenset(WORKS)
"""What a template's ``work`` says when it is a part of a rollout: generation ahead of the passes."""

BACKWARD = frozenset({"B", "I", "W"})
"""The passes that are not forward."""

PARTS = {
    "compute": ("forward", "backward"),
    "recompute": ("recompute",),
    "tp": ("tp",),
    "cp": ("cp",),
    "ep": ("ep",),
    "pp": ("pp",),
    "dp": ("dp",),
    "offload": ("offload",),
    "optimizer": ("optimizer",),
    "bubble": (),
    "other": ("host", "copy", "delay", "other"),
    "prefill": ("prefill",),
    "decode": ("decode",),
    "scoring": ("scoring",),
}
"""The rows of a breakdown, in the order in which they are printed, and the kinds of spans that each one
holds."""

IN_PASSES = frozenset({"tp", "cp", "ep"})
"""Collectives that belong to a pass, also where they run on a chain beside it."""

COMMUNICATION = ("tp", "cp", "ep", "pp", "dp", "offload")

TITLES = {
    "compute": "forward and backward kernels",
    "recompute": "recomputed forward kernels",
    "tp": "tensor-parallel collectives",
    "cp": "context-parallel collectives",
    "ep": "expert-parallel collectives",
    "pp": "messages between stages",
    "dp": "gradients and parameters",
    "offload": "offload to host or disk",
    "optimizer": "optimizer",
    "bubble": "waiting for other stages",
    "other": "host, copies of parameters and gradients, delays",
    "prefill": "prompts of the rollout",
    "decode": "tokens of the rollout, one by one",
    "scoring": "forward passes over the generated sequences",
}
"""What each row of a breakdown is, for people."""


def titles(stages: int) -> Mapping[str, str]:
    """What each row of a breakdown is, for people, in a pipeline of so many *stages*.

    >>> titles(4)["bubble"], titles(1)["bubble"]
    ('waiting for other stages', 'idle: nothing runs')
    """
    return TITLES if stages > 1 else {**TITLES, "bubble": "idle: nothing runs"}


WAITING = {
    "tp": "waiting for late peers",
    "cp": "waiting for late peers",
    "ep": "waiting for late peers",
    "dp": "waiting for late replicas",
    "offload": "waiting for its turn",
    "other": "waiting for late peers",
    "bubble": "at the end of the step",
}
"""What a part of each row of a breakdown may be, for people."""
