"""
A transformer as numbers: shapes, families with their defaults, and exact parameter counts.

Catalogue models are files in ``catalog/``, families are files in ``families/``: a new one is a new file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any

from trainsim.errors import InvalidPlan
from trainsim.models.adapters import Lora
from trainsim.models.latent import DeltaNet, Mla
from trainsim.models.layer_kind import DEFAULT, LayerKind, check_cap, check_kind, counted
from trainsim.models.mapping import mapping_of
from trainsim.models.mixture import Moe
from trainsim.models.patterns import Changes, check_pattern
from trainsim.models.sizes import check_choice, check_name, check_size, check_switch

POSITIONS = ("learned", "rotary", "alibi", "relative", "none")
NORMS = ("layernorm", "layernorm1p", "rmsnorm", "rmsnorm1p")
BIASES = ("all", "qkv", "attention", "mlp", "none")
SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab")
SWITCHES = ("tied_embeddings", "embedding_norm", "final_norm", "head_bias", "dropout")
RELATIVE_BUCKETS = 32
"""Rows of T5's table of relative positions."""
MTP_NORMS = 3
"""Norms around a layer that predicts a token further on: of its two inputs, and before the head."""
_KINDS = (("positions", POSITIONS), ("norm", NORMS), ("biases", BIASES))


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """Layers between an embedding and a head. Counts are exact and unpadded.

    The sizes are those of every layer but those for which ``layer_pattern`` (a name per layer) says another of the
    ``layer_kinds``. Of the ``layers`` the first ``encoder_layers`` are an encoder's, and the others then attend to its
    result. Raises InvalidPlan if sizes are not positive or heads do not divide by kv_heads.

    >>> from trainsim.models.reading import load_model
    >>> load_model("llama-2-7b").parameters
    6738415616
    """

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int
    gated_mlp: bool
    vocab: int
    tied_embeddings: bool
    positions: str
    max_positions: int
    norm: str
    biases: str
    embedding_norm: bool = False  # a norm between embedding and first layer (BLOOM)
    activation: str = "gelu"  # of the MLP, or of its first half if gated
    dropout: bool = False  # trained with dropout, where the framework has kernels for it
    norm_bias: bool = True  # a LayerNorm has a shift beside its scale
    final_norm: bool = True  # a norm before the head
    head_bias: bool = False
    embedding_size: int | None = None  # numbers of a word, where it is projected to ``hidden`` and back (OPT 350M)
    rotary_share: float = 1.0
    qk_norm: str = "none"
    parallel_residual: bool = False
    shared_norm: bool = False
    post_norms: bool = False
    attention_sinks: bool = False
    attention_gate: bool = False
    attention_softcap: float | None = None
    logits_softcap: float | None = None
    lora: Lora | None = None  # only adapters are trained
    moe: Moe | None = None  # experts in the place of the MLP
    mla: Mla | None = None  # latent attention
    linear_attention: DeltaNet | None = None  # in the place of attention
    window: int | None = None  # tokens that a query may look at
    chunk: int | None = None  # tokens of a part of the sequence in which attention stays
    encoder_layers: int = 0
    mtp_layers: int = 0  # layers after the last that predict tokens further on, each like the last
    layer_kinds: tuple[tuple[str, Changes], ...] = ()  # names and what they have that the sizes above are not
    layer_pattern: tuple[str, ...] = ()  # the kind of every layer; () if all are ``default``

    def __post_init__(self) -> None:
        check_name(self.name)
        for key in (*SIZES, "max_positions", "encoder_layers", "mtp_layers"):
            check_size(self.name, key, getattr(self, key), least=1 if key in SIZES else 0)
        if self.embedding_size is not None:
            check_size(self.name, "embedding_size", self.embedding_size)
        for key in SWITCHES:
            check_switch(self.name, key, getattr(self, key))
        for key, allowed in _KINDS:
            check_choice(f"kind of {key}", getattr(self, key), allowed)
        check_cap(self.name, "logits_softcap", self.logits_softcap)
        if self.positions == "learned" and not self.max_positions:
            raise InvalidPlan(f"model {self.name!r}: learned positions need max_positions, the longest sequence")
        self._check_ends()
        check_pattern(self.layer_pattern, [name for name, _ in self.layer_kinds], self.layers)
        for name, kind in _make_kinds(self).items():
            check_choice("kind of positions", kind.positions, POSITIONS)
            check_kind(self.name if name == DEFAULT else f"{self.name}, layer kind {name}", kind)

    def _check_ends(self) -> None:
        """What an encoder, and layers for tokens further on, go with."""
        if self.encoder_layers >= self.layers:
            raise InvalidPlan(
                f"model {self.name!r}: encoder_layers={self.encoder_layers} of {self.layers} layers leave no decoder; "
                f"layers counts both, so {2 * self.encoder_layers} layers have as many of each"
            )
        if not self.encoder_layers:
            return
        for key in ("mtp_layers", "layer_pattern", "mla", "moe", "linear_attention", "window", "chunk", "lora"):
            if getattr(self, key):
                raise InvalidPlan(
                    f"model {self.name!r}: {key} is not simulated in a model with an encoder; leave it or "
                    "encoder_layers out"
                )

    @cached_property
    def kind(self) -> LayerKind:
        """The layer with the model's own sizes."""
        return _named_kinds(self)[DEFAULT]

    @cached_property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kind of every layer, first to last.

        >>> from trainsim.models.reading import transformer
        >>> wide = {"name": "gpt2", "layer_kinds": {"wide": {"ffn_hidden": 4096}}, "layer_pattern": ["wide", "default"]}
        >>> [kind.ffn_hidden for kind in transformer(wide).kinds][:3]
        [4096, 3072, 4096]
        """
        return _kinds(self)

    @cached_property
    def experts(self) -> Moe | None:
        """The experts of the first layer that has some; None for a dense model."""
        return next((kind.moe for kind in counted(self.kinds) if kind.moe is not None), None)

    @property
    def has_experts(self) -> bool:
        """Whether some layer is a mixture of experts."""
        return self.experts is not None

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm: scale, and shift if it is a LayerNorm with one."""
        return self.kind.norm_parameters

    @property
    def stacks(self) -> int:
        """Two for an encoder and a decoder, else one."""
        return 2 if self.encoder_layers else 1

    @property
    def layers_parameters(self) -> int:
        """Parameters of all layers."""
        return sum(kind.parameters * count for kind, count in counted(self.kinds).items())

    @property
    def embedding_width(self) -> int:
        """Numbers of a word in the embedding."""
        return self.embedding_size or self.hidden

    @property
    def projection_parameters(self) -> int:
        """The matrix from the embedding's width to the layers'; the one back has as many. 0 if the width is theirs."""
        return 0 if self.embedding_size is None else self.embedding_size * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """The word embedding, without padding of the vocabulary."""
        return self.vocab * self.embedding_width

    @property
    def position_table(self) -> tuple[int, int]:
        """Rows and columns of the table of positions; no rows if they are computed."""
        if self.positions == "relative":
            return self.stacks * RELATIVE_BUCKETS, self.heads
        return (self.max_positions if self.positions == "learned" else 0), self.hidden

    @property
    def position_parameters(self) -> int:
        """Learned positions, or learned biases of relative ones; 0 if they are computed."""
        rows, columns = self.position_table
        return rows * columns

    @property
    def embedding_norm_parameters(self) -> int:
        """The norm after the embedding, if the model has one."""
        return self.norm_parameters if self.embedding_norm else 0

    @property
    def final_norm_parameters(self) -> int:
        """The norm before the head, and the one after the encoder."""
        return self.stacks * self.norm_parameters if self.final_norm else 0

    @property
    def head_parameters(self) -> int:
        """The output matrix, unless it is the embedding's, and its bias."""
        matrix = 0 if self.tied_embeddings else self.embedding_parameters
        return matrix + (self.vocab if self.head_bias else 0)

    @property
    def mtp_parameters(self) -> int:
        """Layers that predict tokens further on, each with a matrix from two hidden states to one; embedding and head
        are the model's own (DeepSeek-V3, arXiv 2412.19437, section 2.2)."""
        return self.mtp_layers * (self.kinds[-1].parameters + 2 * self.hidden**2 + MTP_NORMS * self.norm_parameters)

    @property
    def parameters(self) -> int:
        """All parameters, as the checkpoint has them.

        >>> from trainsim.models.reading import load_model
        >>> load_model("gpt2").parameters, load_model("bloom-176b").parameters
        (124439808, 176247271424)
        """
        return (
            self.layers_parameters
            + self.embedding_parameters
            + 2 * self.projection_parameters
            + self.position_parameters
            + self.embedding_norm_parameters
            + self.final_norm_parameters
            + self.head_parameters
            + self.mtp_parameters
        )

    @property
    def active_parameters(self) -> int:
        """Parameters that a token meets: all of a dense model, of the experts as many as it is sent to.

        >>> from trainsim.models.reading import load_model
        >>> load_model("mixtral-8x7b").active_parameters
        12879925248
        """
        kinds = self.kinds + self.kinds[-1:] * self.mtp_layers
        return self.parameters - sum((k.parameters - k.active_parameters) * n for k, n in counted(kinds).items())

    def logits_flops(self, *, sequence_length: int, batch: int = 1) -> float:
        """FLOP of the output matrix product in a forward pass, and of that back to the embedding's width if any."""
        return 2.0 * batch * sequence_length * (self.embedding_parameters + self.projection_parameters)

    def flops_forward(
        self, *, sequence_length: int, batch: int = 1, causal: bool = False, decoder_length: int | None = None
    ) -> float:
        """FLOP of a forward pass over *batch* sequences: every matrix product, logits too.

        Attention counts the full square of the sequence, or only what masks leave of it if *causal*. Where there is an
        encoder, *sequence_length* are its tokens and *decoder_length* the decoder's (None: as many).

        >>> from trainsim.models.reading import load_model
        >>> load_model("llama-3-8b").flops_forward(sequence_length=2048)
        32938104193024.0
        """
        far = decoder_length or sequence_length
        layers = 0.0
        for kind, count in counted(self.kinds).items():
            length, memory = (far, sequence_length) if kind.cross_attention else (sequence_length, None)
            layers += count * kind.flops(sequence_length=length, batch=batch, causal=causal, memory=memory)
        last = {"sequence_length": far if self.encoder_layers else sequence_length, "batch": batch}
        projected = 2.0 * batch * sequence_length * self.projection_parameters
        further = self.kinds[-1].flops(**last, causal=causal) + 4.0 * batch * sequence_length * self.hidden**2
        logits = (1 + self.mtp_layers) * self.logits_flops(**last)
        return layers + projected + logits + self.mtp_layers * further

    def to_dict(self) -> dict[str, Any]:
        """The mapping that :func:`transformer` reads back; what is as usual is left out."""
        return mapping_of(self)


@lru_cache(maxsize=256)
def _named_kinds(model: Transformer) -> Mapping[str, LayerKind]:
    return _make_kinds(model)


def _make_kinds(model: Transformer) -> dict[str, LayerKind]:
    """The kinds of layers that a model has, by name."""
    known = {f.name for f in fields(Transformer)} - {"name"}
    own = {f.name: getattr(model, f.name) for f in fields(LayerKind) if f.name in known}
    own |= {"cross_attention": bool(model.encoder_layers)}
    return {DEFAULT: LayerKind(**own)} | {
        name: LayerKind(**{**own, **dict(changes)}, name=name) for name, changes in model.layer_kinds
    }


@lru_cache(maxsize=256)
def _kinds(model: Transformer) -> tuple[LayerKind, ...]:
    named = _named_kinds(model)
    kinds = tuple(named[name] for name in model.layer_pattern or (DEFAULT,) * model.layers)
    if not model.encoder_layers:
        return kinds
    encoder = replace(kinds[0], name="encoder", causal=False, cross_attention=False)
    return (encoder,) * model.encoder_layers + kinds[model.encoder_layers :]


def padded_vocab(vocab: int, tp: int, divisor: int = 128) -> int:
    """The vocabulary rounded up to a multiple of *divisor* x *tp*; Megatron-LM's divisor is 128, PyTorch's is 1.

    >>> padded_vocab(50257, 1), padded_vocab(50257, 8), padded_vocab(50257, 8, 1)
    (50304, 51200, 50264)
    """
    multiple = divisor * tp
    return -(-vocab // multiple) * multiple
