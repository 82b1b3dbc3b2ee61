"""
What Megatron-LM's report of theoretical memory prints, to the last decimal.

It is a closed form of the first pipeline stage. Weights, fp32 gradients and Adam's states are counted exactly, with
experts over their own data-parallel group. Activations are Korthikanti's: with sequence parallelism and selective
recomputation s b h (18 + 4 ffn / h) / tp, and in every other case s b h (10 + 24 / tp) with 5 % on top.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from trainsim.estimators.arguments import MegatronArguments, read_arguments

MEBIBYTE = 2**20
OVERHEAD = 1.05  # for temporaries, only where there is no sequence parallelism with selective recomputation


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronMemory:
    """The report's numbers: parameters, and bytes on the fullest rank. ``layer_activation`` is of one layer and rank.

    ``other_parameters`` is None where there is one stage. ``assumed`` lists what was filled in for arguments left out,
    ``unread`` those that the report does not look at.
    """

    total_parameters: int
    active_parameters: int
    most_loaded_parameters: float
    other_parameters: float | None
    weight_and_optimizer: float
    layer_activation: float
    activation: float
    in_flight: int
    penalty: float
    formula: str
    assumed: tuple[str, ...]
    unread: tuple[str, ...]

    @property
    def total(self) -> float:
        """Bytes on the fullest rank."""
        return self.weight_and_optimizer + self.activation

    def report(self) -> str:
        """The numbers as text; MB are 2**20 bytes, as in Megatron's own report."""
        others = "" if self.other_parameters is None else f", {self.other_parameters / 1e9:.4f} B on the others"
        interleaved = f", {self.penalty:.2f} times that of 1F1B" if self.penalty > 1 else ""
        active = f" ({self.active_parameters / 1e9:.2f} B active)"
        shown = active if self.active_parameters != self.total_parameters else ""
        plural = "" if self.in_flight == 1 else "es"
        lines = [
            f"parameters             {self.total_parameters / 1e9:.2f} B{shown}",
            f"on the fullest rank    {self.most_loaded_parameters / 1e9:.4f} B{others}",
            f"weights and optimizer  {self.weight_and_optimizer / MEBIBYTE:.2f} MB",
            f"activations            {self.activation / MEBIBYTE:.2f} MB: {self.layer_activation / MEBIBYTE:.1f} MB "
            f"a layer, {self.in_flight} microbatch{plural} in flight{interleaved}",
            f"total                  {self.total / MEBIBYTE:.2f} MB",
            f"activations counted    {self.formula}",
        ]
        lines += [f"assumed                {', '.join(self.assumed)}"] if self.assumed else []
        lines += [f"given, but not read    {', '.join(self.unread)}"] if self.unread else []
        return "\n".join(lines)


def megatron_theoretical(arguments: Mapping[str, object] | Namespace) -> MegatronMemory:
    """The numbers (parameters, bytes) of Megatron-LM's report of theoretical memory for *arguments* under its names.

    ``num_microbatches`` is the report's own second argument; without it (and without ``global_batch_size``) the
    pipeline is full. Raises UnknownName for an argument that nobody knows (with the nearest one), InvalidPlan for a
    missing or impossible one, NotBuilt for hybrid models.
    Source: megatron/training/theoretical_memory_usage.py, NVIDIA/Megatron-LM d98e8a64.

    >>> found = megatron_theoretical({
    ...     "num_layers": 48, "hidden_size": 6144, "num_attention_heads": 64, "padded_vocab_size": 51200,
    ...     "seq_length": 2048, "micro_batch_size": 4, "tensor_model_parallel_size": 8, "sequence_parallel": True,
    ...     "recompute_granularity": "selective", "use_distributed_optimizer": True,
    ... })
    >>> f"{found.total / 2**20:.2f}"
    '57373.47'
    """
    read = read_arguments(arguments)
    model, pp = Model.of(read), read.pipeline_model_parallel_size
    fullest, penalty = _fullest(read, model), _penalty(read)
    fused = read.sequence_parallel and read.recompute_granularity == "selective"
    layer, activation, formula = (_with_sequence_parallelism if fused else _without)(read, penalty)
    return MegatronMemory(
        total_parameters=model.total,
        active_parameters=model.active,
        most_loaded_parameters=fullest.total,
        other_parameters=None if pp == 1 else _stage(read, model.block).total,
        weight_and_optimizer=(fullest.cut + fullest.whole) * _bytes_per_parameter(read, read.data_parallel_size)
        + fullest.routed * _bytes_per_parameter(read, read.expert_data_parallel_size),
        layer_activation=layer,
        activation=activation,
        in_flight=_in_flight(read, penalty),
        penalty=penalty,
        formula=formula,
        assumed=read.assumed,
        unread=read.unread,
    )


class Parameters(NamedTuple):
    """Parameters by who holds them: cut over tensor-parallel ranks, whole on each, routed experts."""

    cut: float
    whole: float
    routed: float

    @property
    def total(self) -> float:
        return self.cut + self.whole + self.routed


class Model(NamedTuple):
    """Parameters of the layers with the final norm, of the multi-token prediction, and of one embedding.

    ``active`` counts a token's own experts in the layers, and all of them in the prediction, as the report does.
    """

    block: Parameters
    prediction: Parameters
    embedding: int
    total: int
    active: int

    @classmethod
    def of(cls, read: MegatronArguments) -> Model:
        dense, expert = _layer(read, experts=False), _layer(read, experts=True)
        mixed, layers, last = sum(read.moe_layers), read.num_layers, read.moe_layers[-1]
        block = Parameters(*(mixed * e + (layers - mixed) * d for d, e in zip(dense, expert, strict=True)))
        block = block._replace(whole=block.whole + read.norm_size * read.hidden_size)
        prediction = Parameters(*(read.mtp_num_layers * n for n in (expert if last else dense)))
        embedding = read.hidden_size * read.padded_vocab_size
        copies = 2 if read.untie_embeddings_and_output_weights else 1
        total = int(block.total + prediction.total) + copies * embedding
        idle = expert.routed // read.num_experts * (read.num_experts - read.moe_router_topk) if read.num_experts else 0
        return cls(block, prediction, embedding, total, int(total - mixed * idle))


def _layer(read: MegatronArguments, *, experts: bool) -> Parameters:
    hidden, matrices = read.hidden_size, 3 if read.swiglu else 2
    norms = 2 * hidden * read.norm_size
    if not experts:
        return Parameters(_attention(read) + matrices * hidden * read.ffn_hidden_size, norms, 0)
    count, shared = read.num_experts or 0, read.moe_shared_expert_intermediate_size
    router = hidden * count + (count if read.add_bias_linear else 0)
    gate = hidden if shared and read.moe_shared_expert_gate else 0
    return Parameters(
        _attention(read) + matrices * hidden * shared,
        norms + router + gate,
        matrices * hidden * read.moe_ffn_hidden_size * count,
    )


def _attention(read: MegatronArguments) -> int:
    """Weights of the four projections, biases left out; of latent attention also its norms."""
    hidden, heads = read.hidden_size, read.num_attention_heads
    if read.latent is None:
        return 2 * hidden * read.kv_channels * (heads + read.num_query_groups)
    key_rank, head, rotary, value = read.latent
    query = (
        hidden * heads * (head + rotary)
        if read.q_lora_rank is None
        else read.q_lora_rank * (hidden + heads * (head + rotary) + read.norm_size)
    )
    key = key_rank * (hidden + heads * (head + value) + read.norm_size)
    return query + key + hidden * rotary + heads * value * hidden


def _stage(read: MegatronArguments, block: Parameters) -> Parameters:
    """A rank's part of a stage that has nothing but its share of the layers, whole or not."""
    pp, tp = read.pipeline_model_parallel_size, read.tensor_model_parallel_size
    experts = read.expert_tensor_parallel_size * read.expert_model_parallel_size
    return Parameters(block.cut / pp / tp, block.whole / pp, block.routed / pp / experts)


def _fullest(read: MegatronArguments, model: Model) -> Parameters:
    """A share of the layers, the whole prediction and an embedding; the output layer only if there is one stage."""
    pp, tp = read.pipeline_model_parallel_size, read.tensor_model_parallel_size
    copies = 2 if read.untie_embeddings_and_output_weights and pp == 1 else 1
    share, ahead = _stage(read, model.block), model.prediction
    experts = read.expert_tensor_parallel_size * read.expert_model_parallel_size
    return Parameters(
        share.cut + (ahead.cut + copies * model.embedding) / tp,
        share.whole + ahead.whole,
        share.routed + ahead.routed / experts,
    )


def _bytes_per_parameter(read: MegatronArguments, replicas: int) -> float:
    """bf16 weights, fp32 gradients, and 12 bytes of optimizer, which a distributed one shares among *replicas*."""
    return 6 + 12 / replicas if read.use_distributed_optimizer else 18


def _with_sequence_parallelism(read: MegatronArguments, penalty: float) -> tuple[float, float, str]:
    """Bytes of a layer, of the stage, and the formula: sequence parallelism with selective recomputation.

    Everything is cut over the tensor-parallel ranks, also the output's logits.
    """
    tokens, hidden, tp = read.seq_length * read.micro_batch_size, read.hidden_size, read.tensor_model_parallel_size
    layer = tokens * (18 * hidden + 4 * read.ffn_hidden_size)
    activation = _scheduled(read, layer * read.num_layers, penalty)
    if read.pipeline_model_parallel_size == 1:
        activation += 4 * tokens * (hidden + read.padded_vocab_size)
    return layer / tp, activation / tp, "s b h (18 + 4 ffn/h) / tp: sequence parallelism, selective recomputation"


def _without(read: MegatronArguments, penalty: float) -> tuple[float, float, str]:
    """The same for every other case: ffn = 4h whatever was given, and 5 % on top."""
    tokens, hidden, tp = read.seq_length * read.micro_batch_size, read.hidden_size, read.tensor_model_parallel_size
    layer = tokens * hidden * (10 + 24 / tp)
    activation = _scheduled(read, layer * read.num_layers, penalty)
    if read.pipeline_model_parallel_size == 1:
        activation += 2 * (tokens * read.padded_vocab_size / tp + tokens * hidden)
    return layer, activation * OVERHEAD, "s b h (10 + 24/tp) x 1.05: any run without both of those"


def _scheduled(read: MegatronArguments, layers: float, penalty: float) -> float:
    """What the first stage holds of *layers* bytes and of the embedding's input and dropout, of all in flight."""
    tokens, pp = read.seq_length * read.micro_batch_size, read.pipeline_model_parallel_size
    held = layers + (8 + read.hidden_size) * tokens * pp
    if read.virtual_pipeline_model_parallel_size is not None:
        return held * penalty
    return held if read.num_microbatches is None else held * min(1, read.num_microbatches / pp)


def _penalty(read: MegatronArguments) -> float:
    """How much more than 1F1B an interleaved schedule holds."""
    pp, chunks = read.pipeline_model_parallel_size, read.virtual_pipeline_model_parallel_size
    return 1.0 if chunks is None else 1 + (pp - 1) / (pp * chunks)


def _in_flight(read: MegatronArguments, penalty: float) -> int:
    pp = read.pipeline_model_parallel_size
    if read.virtual_pipeline_model_parallel_size is not None:
        return math.ceil(penalty * pp)
    return pp if read.num_microbatches is None else min(pp, read.num_microbatches)
