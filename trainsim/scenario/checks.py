"""
Rules of division and product: each has its own message, which says the numbers that would work.

Every function takes plain numbers and returns None, or a ``Fault``: the key to change and what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd

MOST_OFFERED = 8


@dataclass(frozen=True, slots=True)
class Fault:
    """``key`` (dotted) of the scenario is wrong, and why."""

    key: str
    message: str


def divisors(*numbers: int) -> list[int]:
    """The common divisors of *numbers*, rising.

    >>> divisors(12, 18)
    [1, 2, 3, 6]
    """
    common = gcd(*numbers)
    small = [d for d in range(1, int(common**0.5) + 1) if common % d == 0]
    return small + [common // d for d in reversed(small) if d * d != common]


def offer(numbers: Iterable[int], near: int, name: str = "") -> str:
    """Some of *numbers* in words, those nearest to *near*; the last word is "would".

    >>> offer([1, 2, 4, 8], 3, "tp")
    'tp=1, 2, 4, 8 would'
    """
    every = sorted(set(numbers))
    chosen = sorted(sorted(every, key=lambda n: (abs(n - near), n))[:MOST_OFFERED])
    if not chosen:
        return f"no {name} would" if name else "none would"
    dots = ", ..." if len(chosen) < len(every) else ""
    return f"{name + '=' if name else ''}{', '.join(map(str, chosen))}{dots} would"


def units(*, precision: str, known: Iterable[str], gpu: str) -> Fault | None:
    """A GPU computes in the precisions that its datasheet has.

    >>> print(units(precision="mxfp8", known=("bf16", "fp8"), gpu="h100").message)
    h100 has no mxfp8 units; it has bf16, fp8
    >>> print(units(precision="bf16", known=("fp32", "fp16"), gpu="v100").message)
    v100 has no bf16 units; it has fp32, fp16: precision: fp16 would run in 16 bits
    >>> units(precision="fp8", known=("bf16", "fp8"), gpu="h100")
    """
    known = tuple(known)
    if precision in known:
        return None
    way = ": precision: fp16 would run in 16 bits" if precision == "bf16" and "fp16" in known else ""
    return Fault("training.precision", f"{gpu} has no {precision} units; it has {', '.join(known)}{way}")


def tensor_parallel(
    *, tp: int, heads: int, kv_heads: int, ffn_hidden: int, sequence_length: int, sequence_parallel: bool
) -> Fault | None:
    """Heads, the MLP and, with sequence parallelism, the sequence are cut into tp parts.

    Key-value heads are cut too, or copied where there are fewer of them than ranks.

    >>> print(tensor_parallel(tp=3, heads=112, kv_heads=112, ffn_hidden=57344, sequence_length=2048,
    ...                       sequence_parallel=False).message)
    112 heads are not divisible by tp=3; tp=1, 2, 4, 7, 8, 14, 16, 28, ... would
    """
    cut = [("heads", heads), ("columns of the MLP (ffn_hidden)", ffn_hidden)]
    if sequence_parallel:
        cut.append(("tokens of a sequence (sequence_parallel)", sequence_length))
    works = [d for d in divisors(*(n for _, n in cut)) if kv_heads % d == 0 or d % kv_heads == 0]
    faults = [(what, number) for what, number in cut if number % tp]
    if kv_heads % tp and tp % kv_heads:
        faults.append(("key-value heads (kv_heads)", kv_heads))
    if not faults:
        return None
    what, number = faults[0]
    return Fault("parallel.tp", f"{number} {what} are not divisible by tp={tp}; {offer(works, tp, 'tp')}")


def product(*, tp: int, pp: int, cp: int, dp: int | None, gpus: int, gpus_per_node: int) -> Fault | None:
    """tp x pp x cp x dp is the number of GPUs: whole nodes, or those of a host list."""
    (nodes, rest), replica = divmod(gpus, gpus_per_node), tp * pp * cp
    shape = f"tp {tp} x pp {pp}" + (f" x cp {cp}" if cp > 1 else "")
    have = (
        f"{nodes} nodes x {gpus_per_node} GPUs = {gpus}" if nodes > 1 else f"one node has {gpus} GPU" + "s" * (gpus > 1)
    )
    have = f"the host list has {gpus}" if rest else have
    if dp is None:
        if gpus % replica == 0:
            return None
        works = offer([d for d in divisors(gpus) if gpus % (tp * cp * d) == 0], pp, "pp")
        multiple = replica // gcd(replica, gpus_per_node)
        nodes_work = offer([multiple * k for k in range(1, 2 + nodes // multiple)], nodes, "nodes")
        works = works if rest else f"{works}, and {nodes_work}"
        return Fault("parallel", f"{shape} = {replica} does not divide the GPUs ({have}); {works}")
    if replica * dp == gpus:
        return None
    if gpus % replica == 0:
        way = f"dp={gpus // replica} would, or leave dp out"
    else:
        way = f"no dp would: {replica} does not divide {gpus}"
    return Fault("parallel.dp", f"{shape} x dp {dp} = {replica * dp}, but {have}; {way}")


def batches(*, global_batch: int, micro_batch: int, dp: int) -> Fault | None:
    """global_batch = micro_batch x dp x accumulation.

    >>> print(batches(global_batch=2048, micro_batch=3, dp=8).message)
    2048 sequences are not divisible by micro_batch 3 x dp 8 = 24; global_batch=2040, 2064 would, or micro_batch=1, 2, 4, 8, 16 would
    """  # noqa: E501
    step = micro_batch * dp
    if global_batch % step == 0:
        return None
    below = global_batch // step * step
    whole = offer([n for n in (below, below + step) if n], global_batch, "global_batch")
    small = [d for d in divisors(global_batch // dp) if d <= 8 * micro_batch] if global_batch % dp == 0 else []
    other = f", or {offer(small, micro_batch, 'micro_batch')}" if small else ""
    shape = f"micro_batch {micro_batch} x dp {dp} = {step}"
    message = f"{global_batch} sequences are not divisible by {shape}; {whole}{other}"
    return Fault("training.global_batch", message)


def micro_batches(*, global_batch: int, accumulation: int, dp: int) -> Fault | None:
    """micro_batch = global_batch / (dp x accumulation).

    >>> print(micro_batches(global_batch=20, accumulation=8, dp=4).message)
    20 sequences are not divisible by dp 4 x gradient_accumulation 8 = 32; gradient_accumulation=1, 5 would, or global_batch=32
    """  # noqa: E501
    step = dp * accumulation
    if global_batch % step == 0:
        return None
    more = divisors(global_batch // dp) if global_batch % dp == 0 else []
    ways = [offer(more, accumulation, "gradient_accumulation")] if more else []
    below = [n for n in (global_batch // step * step, -(-global_batch // step) * step) if n]
    wholes = f"global_batch={', '.join(map(str, below))}"
    ways.append(f"or {wholes}" if ways else f"{wholes} would")
    message = f"{global_batch} sequences are not divisible by dp {dp} x gradient_accumulation {accumulation} = {step}"
    return Fault("training.gradient_accumulation", f"{message}; {', '.join(ways)}")


def accumulation(*, global_batch: int, micro_batch: int, dp: int, accumulation: int) -> Fault | None:
    """All three are given, so they have to agree.

    >>> print(accumulation(global_batch=64, micro_batch=2, dp=4, accumulation=4).message)
    micro_batch 2 x dp 4 x gradient_accumulation 4 = 32, but global_batch is 64; gradient_accumulation=8, micro_batch=4 or global_batch=32 would, or leave one of the three out
    """  # noqa: E501
    product = micro_batch * dp * accumulation
    if product == global_batch:
        return None
    numbers = {"gradient_accumulation": micro_batch * dp, "micro_batch": dp * accumulation}
    ways = [f"{name}={global_batch // other}" for name, other in numbers.items() if global_batch % other == 0]
    ways.append(f"global_batch={product}")
    last = f"{', '.join(ways[:-1])} or {ways[-1]}" if len(ways) > 1 else ways[0]
    shape = f"micro_batch {micro_batch} x dp {dp} x gradient_accumulation {accumulation} = {product}"
    message = f"{shape}, but global_batch is {global_batch}; {last} would, or leave one of the three out"
    return Fault("training.gradient_accumulation", message)


def positions(*, sequence_length: int, learned: bool, max_positions: int) -> Fault | None:
    """A table of learned positions ends somewhere."""
    if not learned or not max_positions or sequence_length <= max_positions:
        return None
    message = f"the model has {max_positions} learned positions; sequence_length={max_positions} or less would work"
    return Fault("training.sequence_length", message)


def sequences(*, sequence_length: int, cp: int) -> Fault | None:
    """Context parallelism cuts a sequence into 2 cp parts."""
    if cp == 1 or sequence_length % (2 * cp) == 0:
        return None
    works = [d for d in range(1, 65) if sequence_length % (2 * d) == 0]
    message = f"{sequence_length} tokens do not divide into 2 x cp parts for cp={cp}; {offer(works, cp, 'cp')}"
    return Fault("parallel.cp", message)


def slices(*, sequence_length: int, slices: int, tp: int = 1) -> Fault | None:
    """Slices of a sequence are equal; with sequence parallelism each is cut into tp parts again.

    >>> print(slices(sequence_length=1000, slices=3).message)
    a sequence of 1000 tokens cannot be cut into 3 equal slices; group=1, 2, 4, 5, 8, 10, 20, 25, ... would
    """
    if sequence_length % (slices * tp) == 0 or slices == 1:
        return None
    works = [d for d in divisors(sequence_length) if sequence_length % (d * tp) == 0]
    parts = f" of {tp} parts (sequence_parallel)" if tp > 1 else ""
    message = f"a sequence of {sequence_length} tokens cannot be cut into {slices} equal slices{parts}"
    return Fault("pipeline.group", f"{message}; {offer(works, slices, 'group')}")


def node_count(*, gpus: int, each: int, nodes: int | None, fixed: bool) -> Fault | None:
    """GPUs in all are whole nodes of *each*, or a part of one; *fixed*: the scenario says how many a node has.

    >>> print(node_count(gpus=20, each=8, nodes=None, fixed=False).message)
    20 GPUs do not fill whole nodes of 8; 16 or 24 would, or another gpus_per_node
    >>> print(node_count(gpus=16, each=8, nodes=4, fixed=False).message)
    16 GPUs are 2 nodes of 8, and cluster.nodes says 4; leave one of them out, or gpus=32
    >>> node_count(gpus=4, each=8, nodes=None, fixed=False)
    """
    whole = gpus // each
    if gpus < each and not fixed and nodes in (None, 1):
        return None
    if gpus % each:
        offered = f"{whole * each} or {(whole + 1) * each}" if whole else f"{each}"
        other = "leave gpus_per_node out for a part of a node" if fixed and gpus < each else "or another gpus_per_node"
        if not whole and nodes:
            other = "or leave nodes out for a part of one node"
        return Fault("cluster.gpus", f"{gpus} GPUs do not fill whole nodes of {each}; {offered} would, {other}")
    if nodes not in (None, whole):
        message = f"{gpus} GPUs are {whole} node{'s' * (whole > 1)} of {each}, and cluster.nodes says {nodes}"
        return Fault("cluster.gpus", f"{message}; leave one of them out, or gpus={nodes * each}")
    return None


def recomputed_layers(*, layers: int | None, layout: tuple[int, ...]) -> Fault | None:
    """No more layers of a virtual stage are recomputed than it has."""
    if layers is None or layers <= max(layout):
        return None
    message = f"no virtual stage has {layers} layers; {max(layout)} or fewer would work, or recompute: full for all"
    return Fault("training.recompute", message)
