"""
What one rank works on, and which kernels its framework runs for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainsim.frameworks import Framework
from trainsim.frameworks.fused import FUSED, Fused
from trainsim.frameworks.kept import Saved
from trainsim.models.fp8_recipes import CastRecipe, recipes

SINGLE = 4  # bytes of a number in single precision
LOW_PRECISION = {"fp8": 1.0, "blockwise": 1.0 + 4 / 128, "mxfp8": 1.0 + 1 / 32, "nvfp4": 0.55}
"""Bytes of a number with its part of the scales (one of 8 bits per 32 numbers in mxfp8, per 16 in nvfp4, one of 32 bits
per 128 in blockwise fp8). Linear layers only; everything else stays in 16 bits."""
EIGHT_BITS = ("fp8", "mxfp8")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertShape:
    """How the experts of a layer are spread over ranks, and which part of their work this one has.

    ``near`` of the ``ep`` ranks that exchange tokens are in one NVLink domain. ``load`` are the tokens that come to
    this rank over the mean, ``busiest`` those of the rank that gets most.
    """

    ep: int = 1
    etp: int = 1
    near: int = 1
    dispatcher: str = "alltoall"
    load: float = 1.0
    busiest: float = 1.0
    shared_overlap: bool = False
    dispatched_bytes: float | None = None  # per element on the way to experts; None: as an activation
    delay_wgrad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What one rank works on: a microbatch, cut over tp (and over cp along the sequence).

    Where a schedule cuts sequences, ``sequence_length`` is that of a slice, and ``context`` the tokens before it.
    ``context_parallel`` names how ranks of a sequence see each other's keys; in a hybrid ``ulysses`` of them are
    neighbours that share the heads.
    """

    micro_batch: int
    sequence_length: int
    tp: int
    padded_vocab: int
    cp: int = 1
    context_parallel: str = "ring"
    ulysses: int = 1
    context: int = 0
    seen: int | None = None  # tokens that attention looks at, where they are not the sequence's own
    decoder_length: int | None = None  # tokens in the decoder, where the others are an encoder's
    memory: int = 0  # in a decoder: tokens of the encoder's result
    document: int = 0  # tokens that a token's document has on average, if attention stays in documents
    sequence_parallel: bool = False
    precision: str = "bf16"
    fp8_recipe: str | None = None  # how numbers of 8 bits and fewer are made; None: there are none
    transposed_copies: bool = True  # a copy of them along each dimension (hardware/kernels)
    autocast: bool = False  # 16 bits by torch.autocast over fp32 weights, not by weights that are in 16 bits
    experts: ExpertShape = ExpertShape()

    @property
    def queries(self) -> int:
        """Positions of the sequence on this rank."""
        return self.sequence_length // self.cp

    @property
    def in_decoder(self) -> Shape:
        """What a rank works on in the decoder behind an encoder of this shape."""
        length = self.decoder_length or self.sequence_length
        return replace(self, sequence_length=length, memory=self.sequence_length)

    @property
    def keys(self) -> int:
        """Positions that the queries may look at."""
        return self.context + self.sequence_length if self.seen is None else self.seen

    @property
    def tokens(self) -> int:
        """Tokens of the microbatch on this rank."""
        return self.micro_batch * self.queries

    @property
    def norm_tokens(self) -> float:
        """Tokens in the regions of norm and dropout, which sequence parallelism cuts over tp as well: as many as the
        largest part has."""
        return float(self.micro_batch * -(-self.queries // self.tp)) if self.sequence_parallel else self.tokens

    @property
    def gathered_by(self) -> int:
        """Ranks that cut an expert and have tokens of their own, which all of them need."""
        return self.experts.etp if self.sequence_parallel or self.tp == 1 else 1

    @property
    def element(self) -> int:
        """Bytes of an activation."""
        return 4 if self.precision in ("fp32", "tf32") else 2

    @property
    def stream(self) -> int:
        """Bytes of a number of the residual stream and of what a norm gives: torch.autocast leaves both in fp32."""
        return SINGLE if self.autocast else self.element

    @property
    def linear_element(self) -> float:
        """Bytes of an activation that a linear layer keeps for its weight gradient."""
        return LOW_PRECISION[self.precision] if self.precision in EIGHT_BITS else self.element

    @property
    def recipe(self) -> CastRecipe | None:
        """How numbers of low precision are made for a linear layer."""
        return None if self.fp8_recipe is None else recipes()[self.fp8_recipe]

    @property
    def products(self) -> str | None:
        """Precision of the products that are not linear layers; None: the job's own."""
        return "bf16" if self.precision in LOW_PRECISION else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Which kernels a framework runs for a layer. See :class:`trainsim.frameworks.Framework` for the fields."""

    attention: str = "flash2"
    causal_skip: bool = True
    dropout: bool = True
    bias_kernels: bool = True
    fused: Fused = FUSED
    expert_kernels: str = "grouped"
    compiled: bool = True  # or with fused kernels of its own: a loss in chunks keeps 16-bit logits
    softmax_passes: float = 1.0
    loss_bytes_per_logit: float
    loss_parallel: bool = True
    cross_entropy: str = "standard"
    loss_chunks: int | None = None  # of the tokens whose logits are there at once; None: as the way usually has it
    saved: Saved
    selective: str = "attention"
    recompute_modules: tuple[str, ...] = ()  # what selective recomputation does again; (): as the framework's rule says
    weight_gradients: str = "temporary"
    accumulates: bool = True
    frozen_gathered: bool = False  # frozen weights come in the type of the passes, however they are stored
    casts_kept: bool = False  # under autocast, cast weights are kept by each product until its backward
    accumulation_bytes: float = 0.0  # per parameter and microbatch, by a kernel of its own


def style_of(framework: Framework, attention: str | None = None) -> Style:
    """The kernels of *framework* with the *attention* that a scenario asks for, or the framework's own."""
    return Style(
        attention=attention or framework.kernels.attention,
        causal_skip=framework.kernels.causal_skip,
        dropout=framework.kernels.dropout,
        bias_kernels=framework.kernels.bias_kernels,
        fused=framework.kernels.fused,
        expert_kernels=framework.kernels.expert_kernels,
        compiled=framework.compiled is not False,
        softmax_passes=framework.kernels.softmax_passes,
        loss_bytes_per_logit=framework.kernels.loss_bytes_per_logit,
        loss_parallel=framework.kernels.loss_parallel,
        saved=framework.memory.saved,
        selective=framework.memory.selective,
        weight_gradients=framework.memory.weight_gradients,
        accumulates=framework.kernels.accumulation_fused,
        accumulation_bytes=framework.kernels.accumulation_bytes_per_parameter,
    )
