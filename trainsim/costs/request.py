"""
What a person asks the time of: kinds of kernels with their shapes, each argument checked before anything is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import isfinite
from numbers import Integral

from trainsim.costs.gemm import BYTES
from trainsim.costs.standard_attention import STANDARD
from trainsim.errors import InvalidPlan, ScenarioError, TrainsimError, UnknownName
from trainsim.hardware.gpu import GPU
from trainsim.models.operations import TUNED, Attention, Gemm, MemoryBound, Work
from trainsim.units import parse_bytes

MOST = 1 << 40
"""The largest size of a kernel, and of its bytes: far above what any GPU holds."""
SIZES = ("batch", "heads", "seq", "head_dim")
OWN_SIZES = ("kv_heads", "value_dim")
"""Sizes of keys and values, where they have their own."""
ROLES = ("forward", "input", "weight")
DIRECTIONS = ("forward", "backward")


def work_of(kind: object, gpu: GPU, shape: dict[str, object]) -> Work:
    """The kernel of a *kind* (gemm, attention, memory_bound) and *shape*.

    Raises a TrainsimError that names the argument, its value and what would do.
    """
    if not isinstance(kind, str) or kind not in _MAKERS:
        raise UnknownName("kind of kernel", str(kind), _MAKERS)
    if kind == "attention":
        shape = shape | {"kernel": _kernel(gpu, shape.get("kernel"))}
    if "kind" in shape and kind == "memory_bound":
        shape = shape | {"kind": _word("kind of memory-bound kernel", shape["kind"], gpu.kernels.memory_bound)}
    if "variant" in shape and kind == "memory_bound":
        known = (TUNED, *gpu.kernels.variants)
        shape = shape | {"variant": _word("variant of memory-bound kernels", shape["variant"], known)}
    try:
        return _MAKERS[kind](**shape)
    except TypeError as error:
        raise ScenarioError(f"{kind}: {str(error).replace(f'_{kind}()', 'its shape')}") from None


def precision_of(dtype: object) -> str:
    """A precision that kernels are known in. Raises UnknownName."""
    return _word("precision", dtype, BYTES)


def _gemm(
    *,
    m: object,
    n: object,
    k: object,
    batch: object = 1,
    role: object = "forward",
    accumulates: object = False,
    grouped: object = False,
) -> Work:
    given = {"m": m, "n": n, "k": k, "batch": batch}
    m, n, k, batch = (_size("gemm", key, value) for key, value in given.items())
    role, adds = _word("role of a gemm", role, ROLES), _flag("accumulates", accumulates)
    return Gemm("gemm", m, n, k, batch, role, adds, grouped=_flag("grouped", grouped))


def _attention(*, kernel: str, causal: object = True, direction: object = "forward", **given: object) -> Work:
    if missing := [key for key in SIZES if key not in given]:
        raise TypeError(f"_attention() missing 1 required keyword-only argument: '{missing[0]}'")
    if unknown := [key for key in given if key not in (*SIZES, *OWN_SIZES)]:
        raise TypeError(f"_attention() got an unexpected keyword argument '{unknown[0]}'")
    sizes = {key: _size("attention", key, value) for key, value in given.items() if value is not None or key in SIZES}
    heads, kv_heads = sizes["heads"], sizes.get("kv_heads", sizes["heads"])
    if heads % kv_heads:
        raise InvalidPlan(
            f"attention: heads={heads} are not divisible by kv_heads={kv_heads}; give one that divides, or leave it out"
        )
    return Attention(
        "attention",
        kernel,
        sizes["batch"],
        heads,
        kv_heads,
        sizes["seq"],
        sizes["seq"],
        sizes["head_dim"],
        _flag("causal", causal),
        _word("direction of attention", direction, DIRECTIONS),
        sizes.get("value_dim"),
    )


def _kernel(gpu: GPU, kernel: object) -> str:
    """A fused kernel with a curve on *gpu*; None and ``sdpa``: what PyTorch takes, or what stands in for it there."""
    constants = gpu.kernels.attention
    if kernel is None or kernel == "sdpa":
        return constants.usual if constants.usual in constants.curves else constants.fallback
    if isinstance(kernel, str) and kernel in constants.absent:
        raise ScenarioError(
            f"attention: {kernel} needs {constants.absent[kernel]} and does not run on {gpu.name}; "
            f"{', '.join(('sdpa', *constants.named))} would"
        )
    if kernel == STANDARD:
        return STANDARD
    return _word(f"attention kernel that is known on {gpu.name}", kernel, constants.curves)


def _memory_bound(*, kind: str, nbytes: object, variant: str = TUNED) -> Work:
    return MemoryBound(kind, kind, _bytes(nbytes), variant=variant)


def _bytes(value: object) -> float:
    reason = "is not an amount of data; give bytes >= 0, or text such as '1GiB'"
    wrong = InvalidPlan(f"memory_bound: nbytes={value!r} {reason}")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong
    try:
        nbytes = parse_bytes(value)
    except (TrainsimError, ValueError, OverflowError):
        raise wrong from None
    if not isfinite(nbytes) or not 0 <= nbytes <= float(MOST) ** 2:
        raise wrong
    return nbytes


def _size(kind: str, key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= MOST:
        raise InvalidPlan(f"{kind}: {key}={value!r} is not a size; it must be a whole number from 1 to {MOST}")
    return int(value)


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidPlan(f"{key}={value!r} must be True or False")
    return value


def _word(what: str, value: object, known: Collection[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise UnknownName(what, str(value), known)
    return value


_MAKERS: dict[str, Callable[..., Work]] = {"gemm": _gemm, "attention": _attention, "memory_bound": _memory_bound}
