"""
A GPU under PyTorch: kernels timed one by one. The module ``torch`` is handed in, so that tests bring one of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from trainsim.models.operations import Attention, Gemm, MemoryBound

WARM, TIMED = 3, 10
"""Runs before a kernel is timed, and those that are."""
LOADED = 300
"""Products in a row after which the clock is that of a long load."""
COPIED = 1 << 28
"""Bytes of a copy that is timed."""
ROW = 4096
"""Numbers of a row of the tensors on which memory-bound kernels are timed."""


class TorchDevice:
    """The current GPU of *torch*: what it is called, and how long kernels take on it (s)."""

    def __init__(self, torch: Any):
        self.torch = torch
        self.name = str(torch.cuda.get_device_name())

    def gemm(self, work: Gemm) -> float:
        """A product in bf16, in a short burst."""
        return self._timed(self._product(work))

    def loaded(self, work: Gemm) -> float:
        """The same at the end of a long row of them."""
        run = self._product(work)
        for _ in range(LOADED):
            run()
        return self._timed(run)

    def attention(self, work: Attention) -> tuple[float, float]:
        """scaled_dot_product_attention in bf16: forward, and backward after it."""
        torch = self.torch
        shape = (work.batch, work.heads, work.queries, work.head_dim)
        q, k, v = (self._random(*shape).requires_grad_() for _ in range(3))
        attend = torch.nn.functional.scaled_dot_product_attention

        def both() -> None:
            attend(q, k, v, is_causal=work.causal).backward(out)

        out = attend(q, k, v, is_causal=work.causal).detach()
        with torch.no_grad():
            forward = self._timed(lambda: attend(q, k, v, is_causal=work.causal))
        return forward, max(self._timed(both) - forward, 0.0)

    def memory_bound(self, work: MemoryBound) -> float:
        """PyTorch's own kernel of a kind, in bf16, that reads one tensor and writes one."""
        rows, width = max(int(work.nbytes) // (2 * 2 * ROW), 1), ROW
        x, functional = self._random(rows, width), self.torch.nn.functional
        runs: dict[str, Callable[[], Any]] = {
            "norm": lambda: functional.layer_norm(x, (width,)),
            "elementwise": lambda: x + 1.0,
            "gelu": lambda: functional.gelu(x),
            "softmax": lambda: functional.softmax(x, dim=-1),
        }
        return self._timed(runs[work.kind])

    def copies(self) -> dict[str, float]:
        """Bytes/s of copies from the host, to it, and within the GPU."""
        torch = self.torch
        host = torch.empty(COPIED, dtype=torch.uint8, pin_memory=True)
        here, there = (torch.empty(COPIED, dtype=torch.uint8, device="cuda") for _ in range(2))
        runs = {
            "host to GPU": lambda: here.copy_(host, non_blocking=True),
            "GPU to host": lambda: host.copy_(here, non_blocking=True),
            "within the GPU": lambda: there.copy_(here),
        }
        return {name: COPIED / self._timed(run) for name, run in runs.items()}

    def _product(self, work: Gemm) -> Callable[[], Any]:
        a, b = self._random(work.m, work.k), self._random(work.k, work.n)
        return lambda: self.torch.matmul(a, b)

    def _random(self, *shape: int) -> Any:
        return self.torch.randn(*shape, device="cuda", dtype=self.torch.bfloat16)

    def _timed(self, run: Callable[[], Any]) -> float:
        """The median time of some runs, by events of the GPU."""
        cuda = self.torch.cuda
        for _ in range(WARM):
            run()
        pairs = []
        for _ in range(TIMED):
            begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            pairs.append((begin, end))
        cuda.synchronize()
        return float(median(begin.elapsed_time(end) for begin, end in pairs)) * 1e-3
