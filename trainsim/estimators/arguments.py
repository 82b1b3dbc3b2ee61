"""
Megatron-LM's arguments as its memory report reads them: checked, and what is left out filled in as Megatron does.

Two defaults differ. A model with ``swiglu`` is taken for one of Llama's kind, with RMSNorm and without biases, where
Megatron's own defaults are LayerNorm and biases; and ``num_query_groups`` alone switches grouped queries on. What was
assumed is told beside the result.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainsim.errors import InvalidPlan, NotBuilt, UnknownName
from trainsim.estimators.checked import choice, switch, whole

NEEDED = (
    *("num_layers", "hidden_size", "num_attention_heads", "padded_vocab_size"),
    *("seq_length", "micro_batch_size"),
)
LATENT = ("kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")
DEGREES = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
    "expert_model_parallel_size",
)
COUNTS = (
    *("num_query_groups", "ffn_hidden_size", "kv_channels", "virtual_pipeline_model_parallel_size"),
    *("data_parallel_size", "world_size", "expert_tensor_parallel_size", "num_microbatches", "global_batch_size"),
    *("num_experts", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size", "moe_router_topk"),
    *("mtp_num_layers", "q_lora_rank"),
)
SWITCHES = (
    *("group_query_attention", "sequence_parallel", "use_distributed_optimizer", "swiglu"),
    *("untie_embeddings_and_output_weights", "multi_latent_attention", "moe_shared_expert_gate", "add_bias_linear"),
    "is_hybrid_model",
)
GRANULARITIES, NORMALIZATIONS = ("full", "selective"), ("LayerNorm", "RMSNorm")
OTHERS = ("recompute_granularity", "normalization", "moe_layer_freq")
UNREAD = (
    *("recompute_method", "recompute_num_layers", "recompute_modules", "max_position_embeddings"),
    *("position_embedding_type", "attention_dropout", "hidden_dropout", "bf16", "fp16", "fp8", "vocab_size"),
    *("make_vocab_size_divisible_by", "add_qkv_bias", "qk_layernorm", "use_flash_attn", "attention_backend"),
    *("transformer_impl", "overlap_grad_reduce", "overlap_param_gather", "grad_reduce_in_bf16", "optimizer"),
    *("moe_token_dispatcher_type", "moe_grouped_gemm", "accumulate_allreduce_grads_in_fp32", "train_iters"),
)
"""Arguments that change what a run holds and that the report does not look at, or that only go with the others."""

KNOWN = frozenset((*NEEDED, *LATENT, *DEGREES, *COUNTS, *SWITCHES, *OTHERS, *UNREAD))


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronArguments:
    """What the report reads, under Megatron's names. ``moe_layers`` has a truth value per layer."""

    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_query_groups: int
    kv_channels: int
    ffn_hidden_size: int
    padded_vocab_size: int
    seq_length: int
    micro_batch_size: int
    tensor_model_parallel_size: int
    pipeline_model_parallel_size: int
    virtual_pipeline_model_parallel_size: int | None
    data_parallel_size: int
    expert_model_parallel_size: int
    expert_tensor_parallel_size: int
    expert_data_parallel_size: int
    num_microbatches: int | None
    num_experts: int | None
    moe_layers: tuple[bool, ...]
    moe_ffn_hidden_size: int
    moe_shared_expert_intermediate_size: int
    moe_shared_expert_gate: bool
    moe_router_topk: int
    mtp_num_layers: int
    q_lora_rank: int | None
    latent: tuple[int, int, int, int] | None
    norm_size: int
    add_bias_linear: bool
    swiglu: bool
    untie_embeddings_and_output_weights: bool
    sequence_parallel: bool
    recompute_granularity: str | None
    use_distributed_optimizer: bool
    assumed: tuple[str, ...]
    unread: tuple[str, ...]


def read_arguments(arguments: Mapping[str, object] | Namespace) -> MegatronArguments:
    """*arguments* as Megatron spells them, checked; None, nan and "" are the same as an argument left out.

    Raises UnknownName for an argument that nobody knows, InvalidPlan for one that is missing or makes no sense.

    >>> read_arguments({"num_layer": 2})
    Traceback (most recent call last):
    trainsim.errors.UnknownName: No Megatron argument is called 'num_layer'. Did you mean 'num_layers'? ...
    """
    return _ArgumentReader(vars(arguments) if isinstance(arguments, Namespace) else arguments).read()


class _ArgumentReader:
    """One reading of one mapping: every value is checked once, every default noted."""

    def __init__(self, arguments: Mapping[str, object]):
        if not isinstance(arguments, Mapping):
            raise InvalidPlan(
                f"{arguments!r} is not a mapping of Megatron's arguments; write for example {{'num_layers': 32, ...}}"
            )
        for name in arguments:
            if name not in KNOWN:
                raise UnknownName("Megatron argument", str(name), KNOWN)
        self.given = {name: value for name, value in arguments.items() if not _absent(value)}
        missing = [name for name in NEEDED if name not in self.given]
        if missing:
            raise InvalidPlan(f"Megatron's report needs {', '.join(missing)} too; add it to the arguments")
        self.assumed: dict[str, object] = {}

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number; left out, it is *default*, which is noted unless it is one (of something)."""
        if name in self.given:
            return whole(name, self.given[name])
        if default is None:
            raise InvalidPlan(f"Megatron's report needs {name} here; add it to the arguments")
        if default != 1:
            self.assumed[name] = default
        return default

    def maybe(self, name: str) -> int | None:
        """A whole number, or None if it is left out."""
        return self.count(name) if name in self.given else None

    def switch(self, name: str) -> bool:
        """A truth value, false if it is left out."""
        return switch(name, self.given.get(name, False))

    def read(self) -> MegatronArguments:
        """All arguments; the order is that of the report's own reading."""
        if self.switch("is_hybrid_model"):
            raise NotBuilt("is_hybrid_model: Megatron's report does not cover hybrid models; run a scenario instead")
        tp = self.count("tensor_model_parallel_size", 1)
        pp = self.count("pipeline_model_parallel_size", 1)
        dp, world = self._data_parallel(tp, pp)
        ep = self.count("expert_model_parallel_size", 1)
        etp = self.count("expert_tensor_parallel_size", tp if "num_experts" in self.given else 1)
        fields: dict[str, object] = {name: self.count(name) for name in NEEDED}
        fields |= self._attention() | self._feed_forward() | self._norms()
        own = {
            "tensor_model_parallel_size": tp,
            "pipeline_model_parallel_size": pp,
            "virtual_pipeline_model_parallel_size": self.maybe("virtual_pipeline_model_parallel_size"),
            "data_parallel_size": dp,
            "expert_model_parallel_size": ep,
            "expert_tensor_parallel_size": etp,
            "expert_data_parallel_size": self._expert_data_parallel(world, etp * ep * pp),
            "num_microbatches": self._microbatches(dp),
            "mtp_num_layers": self.maybe("mtp_num_layers") or 0,
            "untie_embeddings_and_output_weights": self.switch("untie_embeddings_and_output_weights"),
            "sequence_parallel": self.switch("sequence_parallel"),
            "recompute_granularity": self._granularity(),
            "use_distributed_optimizer": self.switch("use_distributed_optimizer"),
        }
        notes = {
            "assumed": tuple(f"{name} = {value}" for name, value in self.assumed.items()),
            "unread": tuple(sorted({*UNREAD, "context_parallel_size"} & self.given.keys())),
        }
        return MegatronArguments(**fields, **own, **notes)  # type: ignore[arg-type]

    def _granularity(self) -> str | None:
        """What is recomputed; a table writes None as a word."""
        granularity = self.given.get("recompute_granularity", "none")
        return (
            None if str(granularity).lower() == "none" else choice("recompute_granularity", granularity, GRANULARITIES)
        )

    def _data_parallel(self, tp: int, pp: int) -> tuple[int, int]:
        """Data-parallel degree and number of GPUs; either follows from the other."""
        model = tp * pp * self.count("context_parallel_size", 1)
        world, dp = self.maybe("world_size"), self.maybe("data_parallel_size")
        if world is not None and (world % model or dp not in (None, world // model)):
            raise InvalidPlan(
                f"world_size = {world} is not {model} (tensor x pipeline x context) x data_parallel_size"
                f"{'' if dp is None else f' = {model * dp}'}; leave one of them out"
            )
        dp = dp or (1 if world is None else world // model)
        return dp, model * dp

    def _expert_data_parallel(self, world: int, expert: int) -> int:
        """Replicas of an expert; only a model with experts must divide."""
        if "num_experts" not in self.given:
            return 1
        if world % expert:
            raise InvalidPlan(
                f"{world} GPUs are not divisible by expert_tensor_parallel_size x expert_model_parallel_size x "
                f"pipeline_model_parallel_size = {expert}; raise data_parallel_size or lower one of those"
            )
        return world // expert

    def _microbatches(self, dp: int) -> int | None:
        """Microbatches of a replica in a step; from the global batch if they are not given, None if nothing says."""
        given, batch = self.maybe("num_microbatches"), self.maybe("global_batch_size")
        if given is not None or batch is None:
            return given
        size = self.count("micro_batch_size") * dp
        if batch % size:
            raise InvalidPlan(
                f"global_batch_size = {batch} is not divisible by micro_batch_size x data parallel = {size}"
            )
        return batch // size

    def _attention(self) -> dict[str, object]:
        heads, hidden = self.count("num_attention_heads"), self.count("hidden_size")
        latent = self.switch("multi_latent_attention")
        grouped = "num_query_groups" in self.given and not latent
        if "group_query_attention" in self.given:
            grouped = self.switch("group_query_attention")
        if grouped and latent:
            raise InvalidPlan("group_query_attention and multi_latent_attention exclude each other; leave one out")
        channels = 1 if latent else self.count("kv_channels", max(1, hidden // heads))
        return {
            "num_query_groups": self.count("num_query_groups") if grouped else heads,
            "kv_channels": channels,
            "q_lora_rank": self.maybe("q_lora_rank"),
            "latent": tuple(self.count(name) for name in LATENT) if latent else None,
        }

    def _feed_forward(self) -> dict[str, object]:
        hidden, layers, gated = self.count("hidden_size"), self.count("num_layers"), self.switch("swiglu")
        ffn = self.count("ffn_hidden_size", int((4 * hidden * 2 / 3) / 64) * 64 if gated else 4 * hidden)
        experts = self.maybe("num_experts")
        return {
            "swiglu": gated,
            "ffn_hidden_size": ffn,
            "num_experts": experts,
            "moe_layers": (False,) * layers
            if experts is None
            else _pattern(self.given.get("moe_layer_freq", 1), layers),
            "moe_ffn_hidden_size": 0 if experts is None else self.count("moe_ffn_hidden_size", ffn),
            "moe_shared_expert_intermediate_size": self.maybe("moe_shared_expert_intermediate_size") or 0,
            "moe_shared_expert_gate": self.switch("moe_shared_expert_gate"),
            "moe_router_topk": 0 if experts is None else self.count("moe_router_topk", 2),
        }

    def _norms(self) -> dict[str, object]:
        gated = self.switch("swiglu")
        norm = self.given.get("normalization")
        if norm is None:
            norm = self.assumed["normalization"] = "RMSNorm" if gated else "LayerNorm"
        kind = choice("normalization", norm, NORMALIZATIONS)
        biased = self.switch("add_bias_linear") if "add_bias_linear" in self.given else not gated
        return {"norm_size": 1 if kind == "RMSNorm" else 2, "add_bias_linear": biased}


def _absent(value: object) -> bool:
    """Whether *value* stands for an argument that was left out, as an empty cell of a table does."""
    return value is None or value == "" or (isinstance(value, float) and value != value)


def _pattern(frequency: object, layers: int) -> tuple[bool, ...]:
    """Which layers have experts: every n-th from the first on, or one truth value per layer."""
    if isinstance(frequency, Sequence) and not isinstance(frequency, str):
        if len(frequency) != layers:
            raise InvalidPlan(
                f"moe_layer_freq has {len(frequency)} entries for num_layers = {layers}; give one per layer"
            )
        return tuple(switch("moe_layer_freq", entry) for entry in frequency)
    every = whole("moe_layer_freq", frequency)
    return tuple(layer % every == 0 for layer in range(layers))
