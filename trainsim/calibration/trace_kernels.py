"""
Kernels of a trace with their shapes: products by the operator that asked for them, collectives by what Kineto notes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from trainsim.calibration.measurements import CollectiveSweep, KernelTiming
from trainsim.calibration.trace_host import KERNELS
from trainsim.measured.collective_records import buffer_of, operation_of_record
from trainsim.measured.kernel_categories import GEMM
from trainsim.measured.trace_events import Event
from trainsim.models.operations import Gemm

PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::_scaled_mm")

TYPES = {"c10::bfloat16": "bf16", "c10::half": "fp16", "float": "fp32", "c10::float8_e4m3fn": "fp8"}
MEASURED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
"""Collectives whose times are fitted."""
SHORTEST = 20e-6
"""Seconds: shorter kernels say more of the launch than of the product."""


def products(events: Sequence[Event], file: str) -> list[KernelTiming]:
    """Products with their sizes, each once with its median time; none in a trace without ``record_shapes``."""
    asked = {e.cause: e for e in events if e.kind == "cpu_op" and e.name in PRODUCTS and e.cause >= 0}
    seen: dict[tuple[Gemm, str], list[float]] = {}
    for event in events:
        operator = asked.get(event.cause)
        if event.kind not in KERNELS or operator is None or not GEMM.search(event.name):
            continue
        work, precision = _product(operator), _precision(operator)
        if work and precision and event.seconds >= SHORTEST:
            seen.setdefault((work, precision), []).append(event.seconds)
    return [
        KernelTiming(work=work, seconds=median(times), precision=precision, count=len(times), file=file)
        for (work, precision), times in seen.items()
    ]


def _product(operator: Event) -> Gemm | None:
    """The product that an operator's input sizes describe."""
    dims = [d for d in _list(operator.args.get("Input Dims")) if isinstance(d, list) and len(d) in (2, 3)]
    if operator.name == "aten::addmm":
        dims = dims[-2:]
    if len(dims) < 2 or not all(isinstance(n, int) and n > 0 for d in dims[:2] for n in d):
        return None
    (*batch, m, k), (*_, inner, n) = dims[0], dims[1]
    if k != inner or len(dims[0]) != len(dims[1]):
        return None
    return Gemm("gemm", m, n, k, batch[0] if batch else 1)


def _precision(operator: Event) -> str:
    kinds = [TYPES.get(str(kind).lower(), "") for kind in _list(operator.args.get("Input type"))]
    return next((kind for kind in reversed(kinds) if kind), "")


def collectives(traces: Sequence[tuple[str, Sequence[Event]]], gpu: str) -> list[CollectiveSweep]:
    """Collectives by operation and size of the group, over sizes of the buffer, each with its shortest time.

    A rank that comes early waits inside its kernel, so much of a time may be somebody else's: the shortest time over
    ranks and repetitions is the nearest to that of moving the bytes.
    """
    found: dict[tuple[str, int], dict[float, float]] = {}
    for _, events in traces:
        for operation, ranks, nbytes, seconds in _records(events):
            sizes = found.setdefault((operation, ranks), {})
            sizes[nbytes] = min(seconds, sizes.get(nbytes, seconds))
    return [
        CollectiveSweep(
            operation=operation, ranks=ranks, nodes=0, nbytes=tuple(sorted(sizes)),
            seconds=tuple(sizes[size] for size in sorted(sizes)), file=traces[0][0], gpu=gpu, traced=True,
        )
        for (operation, ranks), sizes in found.items()
    ]  # fmt: skip


def _records(events: Sequence[Event]) -> Iterator[tuple[str, int, float, float]]:
    """(Operation, ranks, bytes of NCCL's buffer, seconds) of each collective whose record is whole."""
    for event in events:
        operation = operation_of_record(event.args.get("Collective name"))
        if event.kind not in KERNELS or operation not in MEASURED:
            continue
        ranks, size = event.args.get("Group size"), buffer_of(event.args)
        if isinstance(ranks, int) and ranks > 1 and size > 0 and event.seconds > 0:
            yield operation, ranks, size, event.seconds


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
