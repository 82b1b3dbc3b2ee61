"""What each of the known estimators leaves out, and what the replay counts in its place."""

from __future__ import annotations

from typing import NamedTuple

from trainsim.errors import UnknownName


class Difference(NamedTuple):
    """One thing that an *estimator* leaves out or takes another way, and what the replay counts instead."""

    estimator: str
    leaves_out: str
    replay: str


DEEPSPEED, MEGATRON = "deepspeed_zero_estimate", "megatron_theoretical"
ZERO, KORTHIKANTI = "zero_table", "korthikanti_activations"

_DIFFERENCES = (
    Difference(
        DEEPSPEED,
        "activations, logits, communication buffers and what CUDA, NCCL and PyTorch hold: it counts model states only",
        "every operation's saved tensors, the logits, buffers, and a constant of the framework, at the fullest moment",
    ),
    Difference(
        DEEPSPEED,
        "the moment: 2 + 18/N bytes (stage 2) hold the fp32 copy of the gradients' shard, which lives during the "
        "update only, when no activations do",
        "resident states, and the highest level of all that is held together",
    ),
    Difference(
        DEEPSPEED,
        "the job's size on the CPU: with an offloaded optimizer stage 2 counts 4 bytes per parameter for every GPU of "
        "the job on every node, the worst case of loading the model",
        "what a GPU holds; the host's memory is not the question",
    ),
    Difference(
        DEEPSPEED,
        "how far ahead stage 3 gathers: it adds one module, of 4 bytes per parameter",
        "the layers that are gathered at each moment",
    ),
    Difference(
        DEEPSPEED,
        "tensor and pipeline parallelism: all parameters are divided by all GPUs",
        "the parameters of each rank's own layers, shards, embedding and head",
    ),
    Difference(
        MEGATRON,
        "the scores of attention, everywhere: without sequence parallelism and selective recomputation they would be "
        "kept, full recomputation keeps next to nothing, and both get s b h (10 + 24/tp)",
        "what the attention kernel and the recompute mode keep: scores only where they go through memory",
    ),
    Difference(
        MEGATRON,
        "the gate of SwiGLU: 4 ffn bytes per token as for GELU, and ffn = 4h where sequence parallelism is off",
        "gate, value and product: 6 ffn bytes per token of the model's own width",
    ),
    Difference(
        MEGATRON,
        "grouped queries, experts and context parallelism in activations",
        "the widths of the model's own heads, and the tokens that a rank has",
    ),
    Difference(
        MEGATRON,
        "the stages after the first: logits count only where there is one stage, and the embedding only on the first",
        "every stage, each at its own fullest moment",
    ),
    Difference(
        MEGATRON,
        "precision: bf16 weights and fp32 gradients whatever is trained, and a distributed optimizer that shares among "
        "data-parallel ranks without the context-parallel ones",
        "the framework's bytes per parameter in the scenario's precision, shared as the strategy does",
    ),
    Difference(
        MEGATRON,
        "uneven pipelines: layers/pp layers, a fraction if need be, and 1F1B or interleaving",
        "whole layers as the layout puts them, and the microbatches that the schedule really has in flight",
    ),
    Difference(
        ZERO,
        "all but 16 bytes per parameter of fp16 training with Adam: no fp32 gradients, no buffers, no activations",
        "the framework's bytes per parameter, and everything else that a rank holds",
    ),
    Difference(
        KORTHIKANTI,
        "every model that is not GPT with GELU, ffn = 4h, as many key as query heads, dropout, and eager attention",
        "the operations of the model as the framework runs them: kernels of attention, gates, norms, dropout or none",
    ),
    Difference(
        KORTHIKANTI,
        "what a backward pass needs for itself: recomputed tensors of a layer",
        "the most that each pass holds while it runs (temporary)",
    ),
)


def differences(estimator: str | None = None) -> tuple[Difference, ...]:
    """What the estimators leave out and what the replay counts instead; of all, or of the one that is named.

    >>> [d.leaves_out[:11] for d in differences("zero_table")]
    ['all but 16 ']
    """
    names = {d.estimator for d in _DIFFERENCES}
    if estimator is not None and estimator not in names:
        raise UnknownName("estimator", estimator, names)
    return tuple(d for d in _DIFFERENCES if estimator in (None, d.estimator))
