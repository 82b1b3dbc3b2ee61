"""
What people's rules say of a model's memory: bytes per parameter, the activations' formula, DeepSpeed's two estimators.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainsim.estimators.deepspeed import ZeroEstimate, deepspeed_zero_estimate
from trainsim.estimators.papers import korthikanti_activations
from trainsim.models.tensors import embedding_tensors, head_tensors, layer_tensors
from trainsim.models.transformer import Transformer

STATES = 16
"""Bytes per parameter of weights, gradients, fp32 copy and Adam's two states in mixed precision (arXiv 1910.02054)."""


class RuleOfThumb(NamedTuple):
    """What a rule is about, its formula, and what it gives in bytes."""

    about: str
    formula: str
    nbytes: float


class ToolEstimate(NamedTuple):
    """A row of DeepSpeed's estimators: its options as the tool prints them, and bytes."""

    stage: int
    options: str
    bytes_per_node: int
    bytes_per_gpu: int


def rules(model: Transformer, *, sequence_length: int, micro_batch: int) -> list[RuleOfThumb]:
    """What the rules say of one GPU that holds the whole *model*.

    >>> from trainsim.models.reading import load_model
    >>> [f"{rule.nbytes / 2**30:.4f}" for rule in rules(load_model("qwen1.5-7b"), sequence_length=2048, micro_batch=1)]
    ['115.0567', '28.5000', '8.5000']
    """
    tokens, layers = f"s {sequence_length} x b {micro_batch}", model.layers
    kept = {how: layers * _activations(model, sequence_length, micro_batch, how) for how in ("none", "selective")}
    name = f"h {model.hidden} x L {layers}"
    return [
        RuleOfThumb(
            "model states", f"{STATES} bytes x {model.parameters:,} parameters", STATES * float(model.parameters)
        ),
        RuleOfThumb("activations, eager attention", f"{tokens} x {name} x (34 + 5 a s / h)", kept["none"]),
        RuleOfThumb("activations, fused attention", f"{tokens} x {name} x 34", kept["selective"]),
    ]


def _activations(model: Transformer, sequence_length: int, micro_batch: int, how: str) -> float:
    shape = {"hidden": model.hidden, "heads": model.heads, "recompute": how}
    return korthikanti_activations(sequence_length, micro_batch, **shape).layer  # type: ignore[arg-type]


def largest_module(model: Transformer) -> int:
    """Parameters of the largest module with parameters of its own: DeepSpeed's largest layer.

    >>> from trainsim.models.reading import load_model
    >>> largest_module(load_model("t5-3b"))
    32899072
    """
    sizes: dict[str, int] = {}
    tensors = [*embedding_tensors(model, padded_vocab=model.vocab), *head_tensors(model, padded_vocab=model.vocab)]
    for tensor in tensors:
        sizes[tensor.module] = sizes.get(tensor.module, 0) + tensor.elements
    for kind in set(model.kinds):
        parts: dict[str, int] = {}
        for tensor in layer_tensors(kind):
            module = f"{tensor.module} {tensor.name}" if tensor.module == "experts" else tensor.module
            copies = kind.moe.experts if tensor.module == "experts" and kind.moe else 1
            parts[module] = parts.get(module, 0) + tensor.elements // copies
        sizes = {module: max(sizes.get(module, 0), parts.get(module, 0)) for module in {*sizes, *parts}}
    return max(sizes.values())


def deepspeed_estimates(model: Transformer, *, gpus_per_node: int, nodes: int = 1) -> list[ToolEstimate]:
    """The rows that ``estimate_zero2_model_states_mem_needs_all_live`` and its ZeRO-3 twin print, in their order.

    Its documentation (docs/code-docs/source/memory.rst) shows an older formula for ZeRO-2 without offload, which has
    a row of its own. Source: deepspeed/runtime/zero/stage_1_and_2.py and stage3.py.

    >>> from trainsim.models.reading import load_model
    >>> rows = deepspeed_estimates(load_model("t5-3b"), gpus_per_node=8)
    >>> [f"{row.bytes_per_gpu / 2**30:.2f}GB {row.options}" for row in rows[:2]]
    ['5.31GB offload_optimizer=cpu', '11.29GB offload_optimizer=none']
    """
    return [*_second_stage(model, gpus_per_node, nodes), *_third_stage(model, gpus_per_node, nodes)]


def _second_stage(model: Transformer, gpus_per_node: int, nodes: int) -> Iterator[ToolEstimate]:
    for optimizer in ("cpu", "none"):
        found = deepspeed_zero_estimate(
            2, model.parameters, gpus_per_node=gpus_per_node, nodes=nodes, offload_optimizer=optimizer
        )
        yield _row(2, f"offload_optimizer={optimizer}", found)
    documented = int(model.parameters * (4 + 16 / (gpus_per_node * nodes)))
    yield ToolEstimate(2, "offload_optimizer=none, as documented", found.cpu_bytes_per_node, documented)


def _third_stage(model: Transformer, gpus_per_node: int, nodes: int) -> Iterator[ToolEstimate]:
    for optimizer, parameters in (("cpu", "cpu"), ("cpu", "none"), ("none", "none")):
        for zero_init in (True, False):
            found = deepspeed_zero_estimate(
                3,
                model.parameters,
                largest_layer_parameters=largest_module(model),
                gpus_per_node=gpus_per_node,
                nodes=nodes,
                offload_optimizer=optimizer,
                offload_parameters=parameters,
                zero_init=zero_init,
            )
            options = f"offload_param={parameters}, offload_optimizer={optimizer}, zero_init={int(zero_init)}"
            yield _row(3, options, found)


def _row(stage: int, options: str, found: ZeroEstimate) -> ToolEstimate:
    return ToolEstimate(stage, options, found.cpu_bytes_per_node, found.gpu_bytes_per_gpu)
