"""Which memory-bound operations of a layer are one kernel each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """What is one kernel; else PyTorch's operators run one by one (``models/operators.yaml``).

    ``norm`` (RMSNorm), ``rotary`` (of queries and keys), ``activation`` (of the MLP, with the product where it is
    gated), ``residual`` (dropout and addition), ``bias`` (added by the kernel that follows: GELU, or dropout and
    addition), ``inputs`` (gradients of an input that q, k and v, or gate and up, share are summed by what makes them),
    ``gelu_tanh`` (PyTorch's own kernel of GELU's approximation, not the chain of operators that GPT-2's module is).
    """

    norm: bool
    rotary: bool
    activation: bool
    residual: bool
    bias: bool
    inputs: bool
    gelu_tanh: bool


FUSED = Fused(norm=True, rotary=True, activation=True, residual=True, bias=True, inputs=True, gelu_tanh=True)
"""Everything is."""
