"""
A scenario as a script that starts Megatron-LM with its arguments.
"""

from __future__ import annotations

from typing import Any

from trainsim.errors import shorten
from trainsim.exporters.exporter import Exported, Exporter, Writer, register
from trainsim.exporters.megatron_models import say_model
from trainsim.frameworks import load_framework
from trainsim.scenario.scenario import Scenario

MISSING = "Megatron-LM has no argument for it"
CONTEXT = {"ring": "p2p", "ulysses": "a2a", "all_gather": "allgather", "hybrid": "a2a+p2p"}
KERNELS = {"flash2": "flash", "cudnn": "fused", "eager": "unfused"}
OPTIMIZERS = {"adam": "adam", "sgd-momentum": "sgd", "muon": "muon"}
SCHEDULES = ("1f1b", "interleaved-1f1b")
PROFILE = "megatron-core"


def export(scenario: Scenario) -> Exported:
    """The script, and what of the scenario its arguments do not say."""
    writer = Writer(scenario)
    say_model(writer)
    _degrees(writer)
    _pipeline(writer)
    _batches(writer)
    _numbers(writer)
    _sharding(writer)
    _recompute(writer)
    _overlap(writer)
    if writer.value("framework") == PROFILE:
        writer.write("transformer-impl", "transformer_engine", "framework")
    else:
        writer.leave("framework", f"the script is for Megatron-Core, not for {shorten(writer.value('framework'))}")
    return writer.exported("megatron", _script(writer), MISSING)


def _degrees(writer: Writer) -> None:
    """Degrees; that of data parallelism follows from the GPUs."""
    names = {"tp": "tensor-model-parallel-size", "pp": "pipeline-model-parallel-size", "cp": "context-parallel-size"}
    for axis, name in names.items():
        writer.write(name, writer.value(f"parallel.{axis}"), f"parallel.{axis}")
    if writer.value("model.moe"):
        writer.write("expert-model-parallel-size", writer.value("parallel.ep"), "parallel.ep")
        writer.write("expert-tensor-parallel-size", writer.value("parallel.etp"), "parallel.etp")
    writer.say("parallel.dp", words="nothing: it follows from the GPUs")
    if writer.value("parallel.tp") > 1 and writer.value("parallel.sequence_parallel"):
        writer.write("sequence-parallel", True, "parallel.sequence_parallel")
    elif not writer.value("parallel.sequence_parallel"):
        writer.say("parallel.sequence_parallel", words="sequence-parallel, which is not there")
    else:
        writer.leave("parallel.sequence_parallel", "Megatron-LM turns it off where tp is 1")
    way = writer.value("parallel.context_parallel")
    if writer.value("parallel.cp") > 1:
        writer.write("cp-comm-type", CONTEXT[way], "parallel.context_parallel")
    if way == "hybrid" and (inner := writer.value("parallel.ulysses")):
        outer = writer.value("parallel.cp") // inner
        writer.write("hierarchical-context-parallel-sizes", [inner, outer], "parallel.ulysses")


def _pipeline(writer: Writer) -> None:
    """The schedule by its chunks, and stages that differ by a layout."""
    pp, chunks = writer.value("parallel.pp"), writer.value("pipeline.chunks", 1)
    schedule, layout = writer.value("pipeline.schedule"), writer.value("pipeline.layout")
    if pp == 1:
        return
    if schedule in SCHEDULES:
        writer.say("pipeline.schedule", words="num-virtual-stages-per-pipeline-rank, or none of it")
    else:
        writer.leave("pipeline.schedule", f"Megatron-LM has no {schedule}; {' and '.join(SCHEDULES)} it has")
    if isinstance(layout, list) and len(set(layout)) == 1:
        writer.say("pipeline.layout", words="nothing: all stages are alike")
        if chunks > 1:
            writer.write("num-virtual-stages-per-pipeline-rank", chunks, "pipeline.chunks")
    elif isinstance(layout, list):
        stages = ["t" * count for count in layout]
        stages[0], stages[-1] = f"E{stages[0]}", f"{stages[-1]}L"
        writer.write("pipeline-model-parallel-layout", "|".join(stages), "pipeline.layout", "pipeline.chunks")
    else:
        writer.leave("pipeline.layout", f"{shorten(layout)} is not a list of layers")


def _batches(writer: Writer) -> None:
    """Batches and lengths."""
    writer.write("micro-batch-size", writer.value("training.micro_batch"), "training.micro_batch")
    whole = writer.value("training.global_batch")
    writer.write("global-batch-size", whole, "training.global_batch", "training.gradient_accumulation")
    writer.write("seq-length", writer.value("training.sequence_length"), "training.sequence_length")


def _numbers(writer: Writer) -> None:
    """Precision, types of gradients, the optimizer and the kernel of attention."""
    precision = writer.value("training.precision")
    if precision in ("bf16", "fp16"):
        writer.write(precision, True, "training.precision")
    elif precision in ("fp8", "mxfp8"):
        writer.write("bf16", True, "training.precision")
        writer.write("fp8-format", "hybrid", "training.precision")
        writer.write("fp8-recipe", writer.value("training.fp8_recipe", "mxfp8"), "training.fp8_recipe")
    elif precision == "fp32":
        writer.say("training.precision", words="nothing: neither --bf16 nor --fp16 is there")
    else:
        writer.leave("training.precision", f"Megatron-LM has no {precision}")
    _gradients(writer, precision)
    optimizer = writer.value("training.optimizer")
    if isinstance(optimizer, str) and optimizer in OPTIMIZERS:
        writer.write("optimizer", OPTIMIZERS[optimizer], "training.optimizer")
    else:
        writer.leave("training.optimizer", f"Megatron-LM has no {shorten(optimizer)}")
    kernel = writer.given("training.attention")
    if kernel in KERNELS:
        writer.write("attention-backend", KERNELS[kernel], "training.attention")
    elif kernel:
        writer.leave("training.attention", f"Megatron-LM has no {kernel}; {', '.join(KERNELS)} it has")


def _gradients(writer: Writer, precision: str) -> None:
    """The type of gradients, which are summed and reduced alike."""
    keys = ("training.gradient_dtype", "training.gradients", "training.accumulation_dtype")
    wire, usual = writer.value(keys[0]), load_framework(writer.value("framework")).memory.states.accumulation
    low = precision if precision in ("fp32", "fp16") else "bf16"
    sums = writer.value(keys[2]) or (low if usual == "training" else "fp32")
    if sums != wire:
        for key in keys:
            writer.leave(key, f"Megatron-LM sums gradients as it reduces them, not in {sums} and {wire}")
    elif wire == "bf16":
        writer.write("grad-reduce-in-bf16", True, *keys)
    elif wire == "fp32" and precision == "fp16":
        writer.write("accumulate-allreduce-grads-in-fp32", True, *keys)
    else:
        writer.say(*keys, words="grad-reduce-in-bf16 or accumulate-allreduce-grads-in-fp32, which are not there")


def _sharding(writer: Writer) -> None:
    """The distributed optimizer and what it overlaps."""
    strategy = writer.value("sharding.strategy")
    if strategy == "zero1":
        writer.write("use-distributed-optimizer", True, "sharding.strategy")
    elif strategy == "ddp":
        writer.say("sharding.strategy", words="use-distributed-optimizer, which is not there")
    else:
        writer.leave("sharding.strategy", f"{strategy} is not Megatron-LM's; ddp and zero1 are")
    if writer.value("sharding.overlap"):
        writer.write("overlap-grad-reduce", True, "sharding.overlap")
        gathers = writer.value("sharding.parameter_gather_overlap", True)
        if strategy == "zero1" and gathers:
            writer.write("overlap-param-gather", True, "sharding.parameter_gather_overlap")
        else:
            writer.say("sharding.parameter_gather_overlap", words="overlap-param-gather, which is not there")
    else:
        writer.say("sharding.overlap", words="overlap-grad-reduce, which is not there")
    if (instances := writer.value("sharding.instances", 1)) > 1:
        writer.write("num-distributed-optimizer-instances", instances, "sharding.instances")


def _recompute(writer: Writer) -> None:
    """What is recomputed."""
    key = "training.recompute"
    value = writer.value(key, "none")
    value = {"mode": value} if isinstance(value, str) else dict(value)
    mode, parts = value.pop("mode"), {name: part for name, part in value.items() if part}
    if mode == "none" and not parts:
        writer.say(key, words="recompute-granularity, which is not there")
    elif mode == "full" and set(parts) <= {"layers"}:
        writer.write("recompute-granularity", "full", key)
        method = ("block", parts["layers"]) if parts else ("uniform", 1)
        writer.write("recompute-method", method[0], key)
        writer.write("recompute-num-layers", method[1], key)
    elif mode == "selective" and set(parts) <= {"modules"}:
        writer.write("recompute-granularity", "selective", key)
        if parts:
            writer.write("recompute-modules", list(parts["modules"]), key)
    else:
        writer.leave(key, "Megatron-LM recomputes all layers, the first of each stage, or modules that are named")


def _overlap(writer: Writer) -> None:
    """What tensor parallelism and experts overlap."""
    overlap, tp = writer.value("training.tp_overlap"), writer.value("parallel.tp")
    if tp > 1 and overlap == "userbuffers":
        writer.write("tp-comm-overlap", True, "training.tp_overlap")
    elif tp > 1 and overlap != load_framework(writer.value("framework")).communication.tp_overlap:
        writer.leave("training.tp_overlap", f"no argument says {overlap}; userbuffers there is one for")
    else:
        writer.say("training.tp_overlap", words="tp-comm-overlap, which is not there")
    if not writer.value("model.moe"):
        return
    dispatchers = {"alltoall": "alltoall", "allgather": "allgather", "deepep": "flex"}
    dispatcher = writer.value("training.moe.dispatcher", "alltoall")
    if dispatcher in dispatchers:
        writer.write("moe-token-dispatcher-type", dispatchers[dispatcher], "training.moe.dispatcher")
        if dispatcher == "deepep":
            writer.write("moe-enable-deepep", True, "training.moe.dispatcher")
    if (capacity := writer.value("training.moe.capacity_factor")) is not None:
        writer.write("moe-expert-capacity-factor", capacity, "training.moe.capacity_factor")
    if writer.value("training.moe.pad_to_capacity"):
        writer.write("moe-pad-expert-input-to-capacity", True, "training.moe.pad_to_capacity")
    for key, name in {"moe_overlap": "overlap-moe-expert-parallel-comm", "delay_wgrad": "delay-wgrad-compute"}.items():
        if writer.value(f"training.{key}"):
            writer.write(name, True, f"training.{key}")


def _script(writer: Writer) -> str:
    """The script: torchrun with the GPUs of a node, and an argument on each line."""
    gpus = writer.value("parallel.dp") * writer.value("parallel.tp") * writer.value("parallel.pp")
    gpus *= writer.value("parallel.cp")
    nodes = writer.value("cluster.nodes", 1)
    start = f"torchrun --nproc_per_node {gpus // nodes if gpus % nodes == 0 else gpus} --nnodes {nodes} pretrain_gpt.py"
    arguments = [_argument(name, value) for name, value in writer.lines.items()]
    return "\n".join(["#!/bin/bash", "", " \\\n    ".join([start, *arguments]), ""])


def _argument(name: str, value: Any) -> str:
    """An argument as a shell reads it."""
    from shlex import quote

    if value is True:
        return f"--{name}"
    words = value if isinstance(value, list) else [value]
    return f"--{name} {' '.join(quote(str(word)) for word in words)}"


register(
    Exporter(
        name="megatron",
        title="a script that starts Megatron-LM",
        about="A Bash script that starts pretrain_gpt.py with the arguments of Megatron-Core.",
        suffix=".sh",
        export=export,
    )
)
