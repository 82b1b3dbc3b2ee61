"""
The options of fully sharded data parallelism, and what they mean for a job.

Sources: torch 2.13, ``torch/distributed/fsdp/api.py`` (FSDP1) and ``torch/distributed/fsdp/_fully_shard`` (FSDP2);
pytorch/torchtitan, ``apply_fsdp``; pytorch/ao, ``torchao/float8/fsdp_utils.py``.
"""

from __future__ import annotations

from trainsim.contracts.job import Job
from trainsim.sharding.strategy_options import Option

UNITS: Option[str | int | None] = Option(
    "units",
    None,
    "units",
    "which modules are gathered and reduced together; default: layers, with the rest as the root",
)
RESHARD: Option[bool | int | None] = Option(
    "reshard_after_forward", None, "flag or group", "false keeps parameters gathered until their backward"
)
FORWARD_PREFETCH: Option[bool | int | None] = Option(
    "forward_prefetch", None, "flag or units", "units prefetched explicitly in forward"
)
BACKWARD_PREFETCH: Option[str | int | None] = Option(
    "backward_prefetch",
    None,
    "prefetch",
    "when the gather for the next unit in backward is issued, or how many units ahead",
)
LIMIT: Option[bool | None] = Option(
    "limit_all_gathers", None, "flag", "FSDP1: false lets the host run ahead, so that more units are gathered at once"
)
GATHER_DTYPE: Option[str | None] = Option(
    "gather_dtype",
    None,
    ("fp8", "bf16", "fp16", "fp32"),
    "dtype of parameters on the wire; fp8: for the linear layers that compute in it",
)
SYNC: Option[str | None] = Option(
    "sync", None, ("every", "last"), "whether gradients are reduced after every micro-batch or after the last one"
)
OPTIONS = (UNITS, RESHARD, FORWARD_PREFETCH, BACKWARD_PREFETCH, LIMIT, GATHER_DTYPE, SYNC)
FP8, HALF, FULL = 1.0, 2.0, 4.0  # bytes of a number


def reshard(job: Job) -> int | None:
    """Ranks that share parameters between forward and backward: 0 as outside, 1 nobody; None: not said."""
    given = RESHARD.of(job)
    return int(not given) if isinstance(given, bool) else given


def limits_gathers(job: Job) -> bool:
    """Whether the host waits until a unit is given back before it gathers the next but one."""
    return LIMIT.of(job) is not False


def forward_ahead(job: Job) -> int:
    """Units that a forward gathers ahead; without a word it is one, since the host is that far ahead by itself."""
    return max(1, int(FORWARD_PREFETCH.of(job) or 1))


def backward_ahead(job: Job) -> int:
    """Units that a backward gathers ahead."""
    given = BACKWARD_PREFETCH.of(job)
    return given if isinstance(given, int) else int(given != "none")


def gathered_bytes(job: Job, elements: float, linear: float) -> float:
    """Bytes of so many gathered *elements*, of which *linear* belong to linear layers that compute in 8 bits."""
    given, usual = GATHER_DTYPE.of(job), float(job.training.stream_bytes)
    if given == "fp8":
        return FP8 * linear + usual * (elements - linear)
    return {"fp32": FULL, "bf16": HALF, "fp16": HALF}.get(given or "", usual) * elements
