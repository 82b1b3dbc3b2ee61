"""
How gradients are cut into buckets, tensor by tensor, by those who do: torch's DDP and DeepSpeed.

All take the elements of the tensors in the order in which their gradients are put into buckets. The table of cuts that
they give covers every tensor once, in that order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainsim.errors import InvalidPlan

MEBIBYTE = 1 << 20
DDP_FIRST, DDP_CAP = 1 * MEBIBYTE, 25 * MEBIBYTE  # pytorch/pytorch, torch/nn/parallel/distributed.py


class BucketCut(NamedTuple):
    """One bucket: its elements, how many tensors it holds and the position of the last of them."""

    elements: int
    tensors: int
    last: int


def ddp_cuts(elements: Sequence[int], *, element_bytes: int, cap: float | None = None) -> tuple[BucketCut, ...]:
    """Buckets of DistributedDataParallel that close when they hold *cap* bytes (default 25 MiB, and the first 1 MiB).

    A given *cap* holds for the first bucket too. That is so from the second iteration on: the first has one bucket
    (``cap=math.inf``). Raises InvalidPlan if *cap* is not positive. Source: pytorch 2.13,
    torch/nn/parallel/distributed.py, and torch._C._distributed_c10d._compute_bucket_assignment_by_size.

    >>> ddp_cuts([200_000, 100_000, 5_000_000, 3_000_000], element_bytes=4)
    (BucketCut(elements=300000, tensors=2, last=1), BucketCut(elements=8000000, tensors=2, last=3))
    """
    first, rest = (DDP_FIRST, DDP_CAP) if cap is None else (cap, cap)
    _positive("DDP", "bucket cap", rest)
    out: list[BucketCut] = []
    held = tensors = 0
    for k, size in enumerate(elements):
        held, tensors = held + size, tensors + 1
        if held * element_bytes >= (rest if out else first) or k == len(elements) - 1:
            out.append(BucketCut(held, tensors, k))
            held = tensors = 0
    return tuple(out)


def ipg_cuts(elements: Sequence[int], *, bucket: int) -> tuple[BucketCut, ...]:
    """DeepSpeed's buckets of at most *bucket* elements: full when the next gradient does not fit.

    A gradient larger than the bucket is reduced alone. Raises InvalidPlan if *bucket* is not positive. Source:
    deepspeedai/DeepSpeed 0.19, deepspeed/runtime/zero/stage_1_and_2.py and stage3.py (``reduce_bucket_size``).

    >>> [c.elements for c in ipg_cuts([30, 20, 25, 90, 10], bucket=60)]
    [50, 25, 90, 10]
    """
    _positive("DeepSpeed", "reduce_bucket_size", bucket)
    out: list[BucketCut] = []
    held = tensors = 0
    for k, size in enumerate(elements):
        if tensors and held + size > bucket:
            out.append(BucketCut(held, tensors, k - 1))
            held = tensors = 0
        held, tensors = held + size, tensors + 1
    return (*out, BucketCut(held, tensors, len(elements) - 1)) if tensors else ()


def _positive(who: str, what: str, value: float) -> None:
    if not value > 0:
        raise InvalidPlan(f"{who}: {what} is {value}; it must be more than 0")
