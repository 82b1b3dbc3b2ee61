"""Collectives of a profiler's files: which operation, how many bytes, between whom, as far as the events tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from trainsim.contracts.instructions import SEND
from trainsim.measured.trace_events import number

OPERATIONS = {
    "allreduce": "all_reduce", "all_reduce": "all_reduce", "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather", "all_gather": "all_gather", "_allgather_base": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather", "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter", "reducescatter": "reduce_scatter", "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all": "all_to_all", "alltoall": "all_to_all", "alltoall_base": "all_to_all", "all_to_allv": "all_to_all",
    "broadcast": "broadcast", "_broadcast_oop": "broadcast", "reduce": "reduce", "_reduce_oop": "reduce",
    "send": SEND, "recv": SEND, "sendrecv": SEND, "isend": SEND, "irecv": SEND, "barrier": "all_reduce",
}  # fmt: skip
"""Names in the records of torch.distributed."""
BYTES = {"float": 4, "int": 4, "bfloat16": 2, "half": 2, "double": 8, "long": 8, "byte": 1, "char": 1, "bool": 1,
         "float8_e4m3fn": 1, "float8_e5m2": 1, "short": 2, "long int": 8,
         "unsigned char": 1, "signed char": 1}  # fmt: skip
LIBRARY = re.compile(
    r"nccl|rccl|msccl|nvshmem|deep_?ep|cross_device_reduce|(?:one|two)_?shot_?all|oneccl", re.IGNORECASE
)
"""Kernels that move data between GPUs, by their names."""
KERNEL_NAMES = {
    "all_reduce": "allreduce|all_reduce|cross_device_reduce|shot_?all", "all_gather": "allgather|all_gather",
    "reduce_scatter": "reducescatter|reduce_scatter", "all_to_all": "alltoall|all_to_all|deep_?ep|a2a",
    SEND: "sendrecv|send_recv|(?<![a-z])send|(?<![a-z])recv", "broadcast": "broadcast|bcast", "reduce": "reduce",
}  # fmt: skip
_PATTERNS = {operation: re.compile(words, re.IGNORECASE) for operation, words in KERNEL_NAMES.items()}
RANKS = re.compile(r"\d+")


class CollectiveRecord(NamedTuple):
    """One collective or message, as its rank saw it: bytes of the full buffer (0: not told), ``size`` ranks (0: not
    told) of which ``ranks`` are those that are listed, the process group's name and description. ``source`` and
    ``target`` are the ranks of a message (-1: not told), ``sequence`` its number in its group (-1)."""

    operation: str
    nbytes: float = 0.0
    size: int = 0
    ranks: tuple[int, ...] = ()
    group: str = ""
    about: str = ""
    source: int = -1
    target: int = -1
    sequence: int = -1

    @property
    def key(self) -> str:
        """What tells its group from others, on all its ranks."""
        return f"{self.group}:{','.join(map(str, self.ranks))}" if self.group or self.ranks else f"{self.size}"


def is_communication(name: str) -> bool:
    """Whether a kernel of this *name* moves data between GPUs.

    >>> is_communication("ncclDevKernel_AllReduce_Sum_bf16_RING_LL"), is_communication("ampere_sgemm_128x64_nn")
    (True, False)
    """
    return LIBRARY.search(name) is not None


def operation_of_kernel(name: str) -> str:
    """The operation that a kernel's *name* tells; nothing if it tells none.

    >>> operation_of_kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"), operation_of_kernel("ncclDevKernel_Generic")
    ('send', '')
    >>> operation_of_kernel("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL")
    'reduce_scatter'
    """
    words = name.partition("(")[0].replace("_RING", " ").replace("_TREE", " ")
    return next((operation for operation, pattern in _PATTERNS.items() if pattern.search(words)), "")


def operation_of_record(name: object) -> str:
    """The operation that a record or an annotation calls *name*; nothing for what is none.

    >>> operation_of_record("nccl:_all_gather_base"), operation_of_record("gloo:all_reduce"), operation_of_record(None)
    ('all_gather', 'all_reduce', '')
    """
    word = str(name).lower().rpartition(":")[2].strip()
    word = {"_all_gather_base": "_allgather_base"}.get(word, word)
    return OPERATIONS.get(word, "") or (SEND if word.startswith(("send ", "recv ")) else "")


def record_of(kernel: str, args: Mapping[str, Any], asked: Mapping[str, Any], annotation: str) -> CollectiveRecord:
    """What is known of a communication *kernel* with *args*; *asked* are those of the operator that asked for it, and
    *annotation* what its library calls it."""
    told = {**asked, **args}
    operation = operation_of_record(told.get("Collective name")) or operation_of_record(annotation)
    operation = operation or operation_of_kernel(kernel) or "all_reduce"
    return CollectiveRecord(
        operation=operation,
        nbytes=buffer_of(told) or _of_inputs(told),
        size=max(0, number(told.get("Group size"), 0)),
        ranks=ranks_of(told.get("Process Group Ranks")),
        group=str(told.get("Process Group Name", "")),
        about=str(told.get("Process Group Description", "")),
        source=number(told.get("Src Rank"), -1),
        target=number(told.get("Dst Rank"), -1),
        sequence=number(told.get("Seq"), -1),
    )


def buffer_of(args: Mapping[str, Any]) -> float:
    """Bytes of the buffer: what every rank holds after a gather or before a scatter."""
    sizes = [args.get(key) for key in ("In msg nelems", "Out msg nelems")]
    counts = [float(size) for size in sizes if isinstance(size, int | float) and size > 0]
    return max(counts, default=0.0) * BYTES.get(str(args.get("dtype", "")).lower(), 0)


def _of_inputs(args: Mapping[str, Any]) -> float:
    """Bytes of the tensors that went in, as older profilers note them."""
    dims, kinds = args.get("Input Dims"), args.get("Input type")
    if not isinstance(dims, list) or not isinstance(kinds, list):
        return 0.0
    total = 0.0
    for size, kind in zip(dims, kinds, strict=False):
        if isinstance(size, list) and size and all(isinstance(n, int) and 0 <= n < 1 << 40 for n in size):
            total += float(prod(size)) * BYTES.get(str(kind).lower().removeprefix("c10::"), 0)
    return total if total < float("inf") else 0.0


def ranks_of(value: object) -> tuple[int, ...]:
    """The ranks of a group as records list them; none where the list is not whole.

    >>> ranks_of("[0, 8, 16]"), ranks_of([0, 1]), ranks_of("[0, 1, ...]"), ranks_of(None)
    ((0, 8, 16), (0, 1), (), ())
    """
    if isinstance(value, list):
        return tuple(rank for rank in value if isinstance(rank, int)) if len(value) < 1 << 16 else ()
    text = str(value)
    return tuple(int(word) for word in RANKS.findall(text)) if text.startswith("[") and "..." not in text else ()
