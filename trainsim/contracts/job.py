"""
A resolved scenario as plain frozen values: everything that planning needs, nothing left to derive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trainsim.contracts.allocation import Allocation
from trainsim.contracts.rollout import Rollout
from trainsim.frameworks import Framework
from trainsim.hardware.cluster import Cluster
from trainsim.models.transformer import Transformer
from trainsim.optimizers import Optimizer, load_optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Degrees of parallelism. ``order`` lists the axes innermost first, as Megatron-LM lays ranks on GPUs."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1  # ranks that cut each expert
    sequence_parallel: bool = False
    context_parallel: str = "ring"  # how ranks of a sequence see each other's keys and values
    position_parallel: bool = False  # the table of learned positions is cut over tp as well
    ulysses: int = 1  # in a hybrid: neighbours that share the heads, across whom keys and values go round a ring
    order: tuple[str, ...] = ("tp", "cp", "ep", "dp", "pp")

    @property
    def ranks(self) -> int:
        return self.tp * self.pp * self.dp * self.cp

    @property
    def edp(self) -> int:
        """Ranks that hold the same experts.

        >>> Parallel(tp=2, dp=8, ep=8, etp=1).edp
        2
        """
        return self.tp * self.dp * self.cp // (self.ep * self.etp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The schedule; ``layout`` has the layers of each virtual stage (chunk c of rank r is stage c * pp + r).

    ``group`` microbatches go through a chunk together, or it is the number of slices of a sequence; None: the usual.
    """

    schedule: str
    chunks: int
    layout: tuple[int, ...]
    group: int | None = None
    p2p: str = "async"
    post_validation: bool = False  # nobody waits for the gradient norm: it is checked after the update
    vocabulary_parallel: bool = False  # the logits and the loss are spread over all pipeline ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """Where states live that are not on the GPU (none | cpu | nvme); ``ratio`` is the part of the optimizer's that is
    not, ``delayed_update`` lets the CPU's step run under the next step's passes."""

    optimizer: str = "none"
    parameters: str = "none"
    ratio: float = 1.0
    delayed_update: bool = False
    pipeline_read: bool = False
    pipeline_write: bool = False
    buffer_count: int = 4

    @property
    def any(self) -> bool:
        return self.optimizer != "none" or self.parameters != "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How replicas share model states. ``options`` are those of the strategy, by name, where they differ from their
    defaults: each strategy's file says what they mean (``sharding/strategy_options.py``)."""

    strategy: str = "ddp"
    overlap: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    offload: Offload = Offload()


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How tokens get to their experts. ``loads`` are the experts' shares of the tokens, times the number of experts (()
    for a router that is in balance). With a ``capacity_factor`` an expert takes at most so many times an equal share,
    and exactly so many if it is filled up (``pad_to_capacity``)."""

    dispatcher: str = "alltoall"  # alltoall | allgather | deepep | hybridep
    dispatch_precision: str | None = None  # of tokens on their way to experts: fp8; None: that of activations
    capacity_factor: float | None = None
    pad_to_capacity: bool = False
    loads: tuple[float, ...] = ()
    shared_overlap: bool = False  # shared experts run while tokens are on their way


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Batches, numbers and what is recomputed. ``microbatches`` are those of one replica in one step."""

    sequence_length: int
    micro_batch: int
    global_batch: int
    microbatches: int
    precision: str = "bf16"
    fp8_recipe: str | None = None  # how numbers of 8 bits and fewer are made (models/fp8_recipes.yaml)
    autocast: bool = False  # in 16 bits by torch.autocast over fp32 weights: the residual stream and gathers are fp32
    gradient_bytes: int = 4  # per element on the wire
    accumulation_dtype: str | None = None  # in which gradients are summed: fp32 | bf16 | fp16; None: the framework's
    optimizer: Optimizer = field(default_factory=partial(load_optimizer, "adam"))
    optimizer_in_backward: bool = False  # each parameter is updated as soon as its gradient is there
    recompute: str = "none"  # none | selective | full
    recompute_modules: tuple[str, ...] = ()  # of selective recomputation; (): the framework's
    recompute_policy: str | None = None  # of selective recomputation (models/recompute.py); None: the framework's
    recompute_layers: int | None = None  # layers per virtual stage that are recomputed in full; None: all
    activation_offload: str = "none"  # where saved activations are until their backward: none | cpu
    recompute_every: int = 1  # of the layers of a rank so many-th are recomputed in full
    attention: str = "flash2"
    attention_mask: str = "none"  # where a mask of all pairs of tokens is made that each rank holds: none | gpu | host
    tp_overlap: str = "none"  # none | wgrad | userbuffers | async
    loss_parallel: bool = True  # the loss works on a vocabulary that is cut over tp
    cross_entropy: str = "standard"  # how logits and loss are made (models/cross_entropies)
    loss_chunks: int | None = None  # parts of a micro-batch's tokens whose logits are made at once; None: the usual
    kept_logits: bool | str = False  # the caller keeps them until the backward is over; outputs: keys and values too
    routing: Routing = Routing()
    moe_overlap: bool = False  # tokens are on their way to experts while another microbatch computes
    decoder_length: int | None = None  # tokens of a sequence in the decoder, if there is an encoder before it
    padded_from: int | None = None  # tokens that sequences may have, where padding to the longest makes them shorter
    document: int = 0  # tokens that a token's document has on average; 0: attention does not stay in documents
    delay_wgrad: bool = False  # weight gradients of experts run while gradients of their tokens are on their way
    loss_scaling: bool = False  # all ranks agree that no gradient has overflowed before they update
    tokens: float | None = None  # of the whole training, for its days and its cost; no effect on a step
    rollout: Rollout | None = None  # the sequences that a step generates before it trains on them

    @property
    def number_bytes(self) -> int:
        """Bytes of a weight, a gradient or an activation in the training precision; fp8 and less keep 16-bit copies.

        >>> batches = {"sequence_length": 1, "micro_batch": 1, "global_batch": 1, "microbatches": 1}
        >>> [Training(**batches, precision=p).number_bytes for p in ("bf16", "tf32")]
        [2, 4]
        """
        return 4 if self.precision in ("fp32", "tf32") else 2

    @property
    def stream_bytes(self) -> int:
        """Bytes of a number of the residual stream, and of a weight that is gathered for a pass or of its gradient.

        >>> batches = {"sequence_length": 1, "micro_batch": 1, "global_batch": 1, "microbatches": 1}
        >>> [Training(**batches, autocast=on).stream_bytes for on in (False, True)]
        [2, 4]
        """
        return 4 if self.autocast else self.number_bytes

    def recompute_of(self, place: int, number: int) -> str:
        """What is recomputed of the layer at *place* of its virtual stage, the *number*-th of its rank (both from 0).

        >>> batches = {"sequence_length": 1, "micro_batch": 1, "global_batch": 1, "microbatches": 1}
        >>> second = Training(**batches, recompute="full", recompute_every=2)
        >>> [second.recompute_of(place, place) for place in range(3)]
        ['none', 'full', 'none']
        """
        left_out = self.recompute_layers is not None and place >= self.recompute_layers
        return "none" if left_out or (number + 1) % self.recompute_every else self.recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """Something slower than the rest: kernels of ``ranks`` take ``factor`` times as long, or ``links`` (by name)
    keep only ``factor`` of their bandwidth."""

    factor: float
    ranks: tuple[int, ...] = ()
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Flap:
    """``links`` (by name) keep ``factor`` of their bandwidth from ``since`` to ``until``, seconds after the run began;
    0: nothing gets through, and waits."""

    links: tuple[str, ...]
    since: float
    until: float
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """One rank loses ``seconds`` once, before its first ``at`` (forward | backward | optimizer)."""

    rank: int
    at: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Gradients overflow in ``step``: they are reduced, all ranks agree, and nothing is updated."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """Standard deviations of what is drawn at random, as parts of 1: speeds of GPUs (None: the expected slowest of all
    counts instead), of the cables and uplinks of the network, and of each kernel each time that it runs."""

    gpu: float | None = None
    network: float = 0.0
    kernel: float = 0.0

    @property
    def any(self) -> bool:
        """Whether anything is random."""
        return bool(self.gpu or self.network or self.kernel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """Traffic of others on the network, from the first instant to the last: it takes the part ``load`` of each link
    that ``on`` means (uplinks, nics, or the name of a link or device)."""

    load: float
    on: str = "uplinks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is trained, on what, how."""

    name: str
    model: Transformer
    padded_vocab: int
    cluster: Cluster
    framework: Framework
    parallel: Parallel
    pipeline: Pipeline
    sharding: Sharding
    training: Training
    allocation: Allocation = field(default_factory=Allocation)
    algorithm: dict[str, str] = field(default_factory=dict)  # collective operation -> algorithm; missing: auto
    background: Background | None = None
    what_if: tuple[Slow | Delay | Skip | Flap, ...] = ()
    paged_out: Mapping[int, float] = field(default_factory=dict)  # pipeline rank -> bytes of paged states on the host
    detail: str = "op"  # op | layer | block
    fold: bool = True
    steps: int = 1  # back to back
    jitter: Jitter = Jitter()
    seed: int = 0  # of the jitter

    @property
    def uses_host(self) -> bool:
        """Whether anything is kept off the GPUs, and copied there and back."""
        return self.sharding.offload.any or self.training.activation_offload != "none"

    @property
    def sum_bytes(self) -> float:
        """Bytes of a number in a sum of gradients: the scenario's ``accumulation_dtype`` or the framework's."""
        dtype = self.training.accumulation_dtype or self.framework.memory.states.accumulation
        return 4.0 if dtype == "fp32" else 2.0 if dtype in ("fp16", "bf16") else float(self.training.number_bytes)

    @property
    def experts_apart(self) -> bool:
        """Whether experts are held by other ranks than the layers around them."""
        return self.model.has_experts and (self.parallel.ep > 1 or self.parallel.etp != self.parallel.tp)
