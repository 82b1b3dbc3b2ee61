"""
GPT-NeoX' YAML: Megatron's sizes and degrees with DeepSpeed's keys beside them, in dashes or underscores.
"""

from __future__ import annotations

from typing import Any

from trainsim.errors import shorten
from trainsim.importers.findings import Findings
from trainsim.importers.formats.gpt_neox_keys import KEYS
from trainsim.importers.formats.gpt_neox_models import say_model
from trainsim.importers.importer import Importer, register
from trainsim.importers.reader import Reader
from trainsim.importers.source import Source
from trainsim.importers.tables import table

OWN = ("pipe_parallel_size", "model_parallel_size", "pos_emb", "gpt_j_residual", "no_weight_tying",
       "output_layer_parallelism", "attention_config", "checkpoint_activations")  # fmt: skip
SIZES = ("num_layers", "hidden_size", "num_attention_heads")
WHOSE = "GPT-NeoX' default"
PROFILE = "megatron-deepspeed-2022"


def underscored(key: str) -> str:
    """A key as GPT-NeoX reads it: dashes are underscores.

    >>> underscored("pipe-parallel-size")
    'pipe_parallel_size'
    """
    return str(key).replace("-", "_")


def sniff(source: Source) -> float:
    """Sure of its own keys beside sizes, however they are spelt."""
    keys = {underscored(key) for key in source.data}
    own = sum(key in keys for key in OWN)
    return 0.95 if own > 1 else 0.6 if own and keys & {*SIZES, "zero_optimization", "train_iters"} else 0.0


def load(source: Source) -> Findings:
    """The model, the degrees, the batches, ZeRO and what is recomputed."""
    reader = Reader(source.document, KEYS, underscored)
    reader.assume("framework", PROFILE, "the nearest profile to GPT-NeoX: BigScience's Megatron-DeepSpeed")
    say_model(reader)
    pp = _degrees(reader)
    _batches(reader)
    _precision(reader)
    _zero(reader, pp)
    _recompute(reader)
    _optimizer(reader)
    return reader.findings("gpt-neox")


def _degrees(reader: Reader) -> int:
    """Say the degrees; the stages of the pipeline. 0 stages are a model without DeepSpeed's pipeline, 1 is one with."""
    reader.say("parallel.tp", reader.whole("model_parallel_size"), "model_parallel_size")
    stages: int | None = reader.whole("pipe_parallel_size", low=0)
    if stages is not None:
        reader.say("parallel.pp", max(stages, 1), "pipe_parallel_size")
    if (stages or 1) > 1:
        reader.assume("pipeline.schedule", "deepspeed", "DeepSpeed's order of passes")
    reader.say("parallel.cp", reader.whole("context_parallel_size"), "context_parallel_size")
    reader.say("parallel.ep", reader.whole("moe_expert_parallel_size"), "moe_expert_parallel_size")
    if (cut := reader.flag("sequence_parallel")) is not None and reader.whole("model_parallel_size") != 1:
        reader.say("parallel.sequence_parallel", cut, "sequence_parallel")
    world = reader.whole("global_num_gpus") or reader.whole("world_size")
    if world:
        reader.say("cluster.gpus", world, "global_num_gpus" if reader.has("global_num_gpus") else "world_size")
    return max(stages or 1, 1)


def _batches(reader: Reader) -> None:
    """Say the batches: two of DeepSpeed's three numbers, with one accumulation where there is none."""
    reader.say("training.sequence_length", reader.whole("seq_length"), "seq_length")
    key = "train_micro_batch_size_per_gpu" if reader.has("train_micro_batch_size_per_gpu") else "batch_size"
    reader.say("training.micro_batch", reader.whole(key), key)
    whole = reader.whole("train_batch_size")
    reader.say("training.global_batch", whole, "train_batch_size")
    name = "gradient_accumulation_steps" if reader.has("gradient_accumulation_steps") else "gas"
    steps = reader.whole(name)
    if steps is not None:
        reader.say("training.gradient_accumulation", steps, name)
    elif whole is None:
        reader.assume("training.gradient_accumulation", 1, f"{WHOSE}: train_batch_size is not given")


def _precision(reader: Reader) -> None:
    """Say the type of numbers, which DeepSpeed's sections turn on."""
    words = table("gpt_neox")["precisions"]
    sections = {"bf16.enabled": "bf16", "fp16.enabled": "fp16"}
    on = [(key, value) for key, value in sections.items() if reader.flag(key)]
    if reader.text("fp16.type") in ("bfloat16", "bf16") and on:
        reader.say("training.precision", "bf16", "fp16.type", "fp16.enabled")
    elif on:
        reader.say("training.precision", on[0][1], on[0][0])
    if name := reader.word("precision", words):
        reader.say("training.precision", words[name], "precision")
    elif not on:
        reader.assume("training.precision", "fp32", f"{WHOSE}: neither fp16 nor bf16 is on")
    scale = reader.number("fp16.loss_scale")
    if on and on[0][1] == "fp16" and scale is not None:
        reader.say("training.loss_scaling", "static" if scale else "dynamic", "fp16.loss_scale")
    if (fp32 := reader.flag("fp32_allreduce")) is not None:
        reader.say("training.gradient_dtype", "fp32" if fp32 else None, "fp32_allreduce")
    dtype = reader.word("data_types.grad_accum_dtype", ("fp32", "fp16", "bf16"))
    reader.say("training.accumulation_dtype", dtype, "data_types.grad_accum_dtype")


def _zero(reader: Reader, pp: int) -> None:
    """Say who shares states."""
    section = "zero_optimization"
    key = f"{section}.stage" if reader.has(f"{section}.stage") else "zero_stage"
    stage = reader.whole(key, low=0)
    if stage is None:
        reader.assume("sharding.strategy", "ddp", f"{WHOSE}: ZeRO is off")
        return
    if stage > 3:
        raise reader.fail(key, f"{stage} is not a ZeRO stage; 0 to 3 are")
    if stage > 1 and pp > 1:
        raise reader.fail(key, f"ZeRO-{stage} does not go with a pipeline of {pp} stages in DeepSpeed; 0 or 1 would")
    reader.say("sharding.strategy", "ddp" if stage == 0 else f"zero{stage}", key)
    bucket = (
        f"{section}.reduce_bucket_size" if reader.has(f"{section}.reduce_bucket_size") else "zero_reduce_bucket_size"
    )
    if stage:
        reader.say("sharding.reduce_bucket", reader.whole(bucket), bucket)
    if (overlap := reader.flag(f"{section}.overlap_comm")) is not None:
        reader.say("sharding.overlap", overlap, f"{section}.overlap_comm")
    for name, where in {"offload_optimizer": "optimizer", "offload_param": "parameters"}.items():
        device = reader.word(f"{section}.{name}.device", ("none", "cpu", "nvme"))
        if device and device != "none":
            reader.say(f"sharding.offload.{where}", device, f"{section}.{name}.device")
    if reader.flag(f"{section}.cpu_offload"):
        reader.say("sharding.offload.optimizer", "cpu", f"{section}.cpu_offload")


def _recompute(reader: Reader) -> None:
    """Say what is recomputed, and what of it is kept elsewhere."""
    on = reader.flag("checkpoint_activations")
    if on is None:
        return
    reader.say("training.recompute", "full" if on else "none", "checkpoint_activations")
    several = reader.whole("checkpoint_num_layers")
    if on and several and several > 1:
        words = (
            f"chunks of {several} layers are recomputed at once, of which the first input is kept: here every layer's"
        )
        reader.warn("checkpoint_num_layers", f"not modelled: {words}")
    if on and reader.flag("checkpoint_in_cpu"):
        reader.say("training.activation_offload", "cpu", "checkpoint_in_cpu")
    if on and reader.flag("partition_activations"):
        reader.warn("partition_activations", "not modelled: inputs of layers are cut over tp, and gathered again")


def _optimizer(reader: Reader) -> None:
    """Say the optimizer."""
    from trainsim.optimizers import OPTIMIZERS

    key = "optimizer.type" if reader.has("optimizer.type") else "optimizer_type"
    name: Any = reader.text(key)
    if name is None:
        return
    known = {word.casefold(): to for word, to in table("gpt_neox")["optimizers"].items()}
    optimizer = known.get(name.casefold())
    if optimizer not in OPTIMIZERS.names():
        reader.warn(key, f"{shorten(name)} is not modelled: adam is used, or --set training.optimizer=NAME")
        return
    reader.say("training.optimizer", optimizer, key)
    if name.startswith("cpu_"):
        reader.say("sharding.offload.optimizer", "cpu", key)


register(
    Importer(
        name="gpt-neox",
        title="GPT-NeoX' YAML",
        about="GPT-NeoX' files: Megatron's sizes and degrees, DeepSpeed's keys at the top level.",
        leaves_open="The machine, how many GPUs (unless `global_num_gpus`), the vocabulary, which is the tokenizer's.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "Keys may have dashes or underscores.",
            "`pipe-parallel-size: 0` is a model without DeepSpeed's pipeline, 1 is one with it: both are pp 1.",
            "Of `train_batch_size`, the micro-batch and the accumulation one may be left out; without "
            "`train_batch_size` the accumulation is 1 unless it is given.",
            "Several files of one run (a model, a local setup) are given together.",
        ),
    )
)
