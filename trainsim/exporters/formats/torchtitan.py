"""
A scenario as torchtitan's TOML, in its spelling of 2025.
"""

from __future__ import annotations

import json
from typing import Any

from trainsim.errors import shorten
from trainsim.exporters.exporter import Exported, Exporter, Writer, register
from trainsim.importers.tables import table
from trainsim.scenario.scenario import Scenario

MISSING = "torchtitan has no word for it"
PROFILE = "torchtitan"


def export(scenario: Scenario) -> Exported:
    """The TOML, and what of the scenario it does not say."""
    writer = Writer(scenario)
    _model(writer)
    _batches(writer)
    _numbers(writer)
    _degrees(writer)
    _pipeline(writer)
    _sharding(writer)
    _recompute(writer)
    _framework(writer)
    return writer.exported("torchtitan", _toml(writer), MISSING)


def _model(writer: Writer) -> None:
    """The flavour with these sizes."""
    found = flavor_of(writer.value("model"))
    if found is None:
        writer.leave("model", "no flavour of torchtitan has these sizes; register one and name it in [model]")
        return
    writer.write("model.name", found[0], "model")
    writer.write("model.flavor", found[1], "model")


def flavor_of(model: dict[str, Any]) -> tuple[str, str] | None:
    """The name and the flavour that torchtitan has for a resolved *model*, if it has one."""
    from trainsim.models.reading import load_model

    for name, flavors in table("torchtitan")["flavors"].items():
        for flavor, known in flavors.items():
            sizes = load_model(known).to_dict()
            if _alike(sizes, model):
                return name, flavor
    return None


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two models are the same but for names, and for positions that rotate and have no table."""
    open_ = {"name", "description", "source"} | ({"max_positions"} if one.get("positions") == "rotary" else set())
    return all(one.get(key) == other.get(key) for key in {*one, *other} - open_)


def _batches(writer: Writer) -> None:
    """Batches: the local one is a replica's, with all its micro-batches where there is a pipeline."""
    micro, whole, dp = (writer.value(key) for key in ("training.micro_batch", "training.global_batch", "parallel.dp"))
    pipelined = writer.value("parallel.pp") > 1
    writer.write("training.local_batch_size", whole // dp if pipelined else micro, "training.micro_batch")
    writer.write("training.global_batch_size", whole, "training.global_batch", "training.gradient_accumulation")
    writer.write("training.seq_len", writer.value("training.sequence_length"), "training.sequence_length")
    if pipelined:
        writer.write("parallelism.pipeline_parallel_microbatch_size", micro, "training.micro_batch")
    for key in ("training.documents", "training.mask"):
        if writer.value(key) not in (None, "causal"):
            writer.leave(key, "torchtitan's attention looks across documents, except in flavours of their own")


def _numbers(writer: Writer) -> None:
    """Precision, types of gradients and the optimizer."""
    precision = writer.value("training.precision")
    words = table("torchtitan")
    names = {value: name for name, value in words["precisions"].items() if name != "float16"}
    converter = {"fp8": "float8", "mxfp8": "quantize.linear.mx"}.get(precision)
    if precision in names:
        writer.write("training.mixed_precision_param", names[precision], "training.precision")
    elif converter:
        section = "quantize.linear.float8" if precision == "fp8" else converter
        writer.write("model.converters", [converter], "training.precision")
        writer.write(f"{section}.filter_fqns", ["output"], "training.precision")
        if writer.value("sharding.gather_dtype") == "fp8":
            writer.write(f"{section}.enable_fsdp_float8_all_gather", True, "sharding.gather_dtype")
    else:
        writer.leave("training.precision", f"torchtitan has no {precision}")
    if (dtype := writer.value("training.gradient_dtype")) == "fp32":
        writer.write("training.mixed_precision_reduce", "float32", "training.gradient_dtype", "training.gradients")
    else:
        writer.leave("training.gradient_dtype", f"torchtitan reduces gradients in fp32, not in {dtype}")
    optimizers = {value: name for name, value in words["optimizers"].items()}
    optimizer = writer.value("training.optimizer")
    if isinstance(optimizer, str) and optimizer in optimizers:
        writer.write("optimizer.name", optimizers[optimizer], "training.optimizer")
    else:
        writer.leave("training.optimizer", f"torchtitan has no {shorten(optimizer)}")
    if writer.value("training.optimizer_in_backward"):
        writer.write("optimizer.early_step_in_backward", True, "training.optimizer_in_backward")


def _degrees(writer: Writer) -> None:
    """Degrees of all axes but data parallelism."""
    names = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}
    for axis, name in names.items():
        writer.write(f"parallelism.{name}_parallel_degree", writer.value(f"parallel.{axis}"), f"parallel.{axis}")
    tp, ep = writer.value("parallel.tp"), writer.value("parallel.ep")
    if ep > 1:
        etp = writer.value("parallel.etp")
        writer.write("parallelism.expert_tensor_parallel_degree", etp, "parallel.etp")
    elif writer.value("parallel.etp") == tp:
        writer.say("parallel.etp", words="parallelism.tensor_parallel_degree")
    if writer.value("parallel.sequence_parallel") or tp == 1:
        writer.say("parallel.sequence_parallel", words="parallelism.tensor_parallel_degree, which brings it along")
    else:
        writer.leave("parallel.sequence_parallel", "torchtitan's tensor parallelism always cuts sequences as well")
    methods = {value: name for name, value in table("torchtitan")["rotate_methods"].items()}
    way = writer.value("parallel.context_parallel")
    if writer.value("parallel.cp") > 1 and way in methods:
        writer.write("parallelism.context_parallel_rotate_method", methods[way], "parallel.context_parallel")
    elif writer.value("parallel.cp") > 1:
        writer.leave("parallel.context_parallel", f"torchtitan has no {way}; {' and '.join(methods)} it has")
    _tensor_parallel(writer, tp)


def _tensor_parallel(writer: Writer, tp: int) -> None:
    """What overlaps beside tensor parallelism, and the loss."""
    overlap = writer.value("training.tp_overlap")
    if tp > 1 and overlap == "async":
        writer.write("parallelism.enable_async_tensor_parallel", True, "training.tp_overlap")
    elif tp > 1 and overlap != "none":
        writer.leave("training.tp_overlap", f"torchtitan has no {overlap}; async it has")
    else:
        writer.say("training.tp_overlap", words="parallelism.enable_async_tensor_parallel, which is off")
    if tp > 1 and not writer.value("training.loss_parallel", True):
        writer.write("parallelism.disable_loss_parallel", True, "training.loss_parallel")
    else:
        writer.say("training.loss_parallel", words="parallelism.disable_loss_parallel, which is off")


def _pipeline(writer: Writer) -> None:
    """The schedule, and the layers of each stage by name."""
    if writer.value("parallel.pp") == 1:
        return
    schedule, layout = writer.value("pipeline.schedule"), writer.value("pipeline.layout")
    known = {entry["schedule"]: name for name, entry in table("torchtitan")["schedules"].items()}
    if schedule in known:
        writer.write("parallelism.pipeline_parallel_schedule", known[schedule], "pipeline.schedule")
    elif str(schedule).endswith(".csv"):
        writer.write("parallelism.pipeline_parallel_schedule", "_PipelineScheduleRuntime", "pipeline.schedule")
        writer.write("parallelism.pipeline_parallel_schedule_csv", schedule, "pipeline.schedule")
    else:
        writer.leave("pipeline.schedule", f"torchtitan has no {schedule}; {', '.join(known)} it has")
    if isinstance(layout, list) and sum(layout) == writer.value("model.layers"):
        parts = _parts(layout)
        writer.write("parallelism.module_fqns_per_model_part", parts, "pipeline.layout", "pipeline.chunks")
    else:
        writer.leave("pipeline.layout", f"{shorten(layout)} names no layers of each stage")


def _parts(layout: list[int]) -> list[list[str]]:
    """The modules of each stage."""
    parts, start = [], 0
    for count in layout:
        parts.append([f"layers.{layer}" for layer in range(start, start + count)])
        start += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    return parts


def _sharding(writer: Writer) -> None:
    """Replicas and ranks of a shard, and what lives on the host."""
    strategy, dp, cp = (writer.value(key) for key in ("sharding.strategy", "parallel.dp", "parallel.cp"))
    size = writer.value("sharding.shard_size", dp * cp)
    replicate = {"ddp": dp, "hsdp": dp * cp // size}.get(strategy, 1)
    fits = strategy != "hsdp" or (size % cp == 0 and dp * cp % size == 0)
    expressible = {"ddp": cp == 1, "fsdp": dp * cp > 1, "hsdp": fits and replicate > 1 and size > 1}
    if not expressible.get(strategy, False):
        known = "it replicates, or shares among dp x cp ranks as FSDP and HSDP do"
        writer.leave("sharding.strategy", f"torchtitan has no {strategy} with dp {dp} and cp {cp}; {known}")
        replicate = 1
    shard = dp // replicate if dp % replicate == 0 else dp
    writer.write("parallelism.data_parallel_replicate_degree", dp // shard, "parallel.dp")
    writer.write("parallelism.data_parallel_shard_degree", shard, "parallel.dp")
    if expressible.get(strategy, False):
        words = "parallelism.data_parallel_shard_degree and data_parallel_replicate_degree"
        writer.say("sharding.strategy", "sharding.shard_size", words=words)
    _gathered(writer)


def _gathered(writer: Writer) -> None:
    """What stays gathered, and what lives on the host."""
    reshard = writer.value("sharding.reshard_after_forward")
    pipelined = writer.value("parallel.pp") > 1
    if isinstance(reshard, bool) and not (reshard and pipelined):
        policy = "always" if reshard else "never"
        writer.write("parallelism.fsdp_reshard_after_forward", policy, "sharding.reshard_after_forward")
    elif reshard is not None:
        why = (
            "in a pipeline torchtitan's default keeps parameters" if pipelined else "torchtitan reshards all or nothing"
        )
        writer.leave("sharding.reshard_after_forward", why)
    offload = writer.value("sharding.offload", {})
    both = {offload.get("optimizer", "none"), offload.get("parameters", "none")}
    if both == {"cpu"} and set(offload) <= {"optimizer", "parameters"}:
        writer.write("training.enable_cpu_offload", True, "sharding.offload")
    elif both != {"none"}:
        writer.leave("sharding.offload", "torchtitan offloads parameters, gradients and states together to the CPU")


def _recompute(writer: Writer) -> None:
    """What is recomputed."""
    value, key = writer.value("training.recompute", "none"), "training.recompute"
    value = {"mode": value} if isinstance(value, str) else value
    mode, every, policy = value.get("mode"), value.get("every"), value.get("policy")
    section = "activation_checkpoint"
    others = set(value) - {"mode", "every", "policy"}
    if mode in ("none", "full") and not others and (every or 1) == 1:
        writer.write(f"{section}.mode", mode, key)
    elif mode == "full" and not others:
        writer.write(f"{section}.mode", "selective", key)
        writer.write(f"{section}.selective_ac_option", str(every), key)
    elif mode == "selective" and policy == "op":
        writer.write(f"{section}.mode", "selective", key)
        writer.write(f"{section}.selective_ac_option", "op", key)
    else:
        writer.leave(
            key, "torchtitan recomputes nothing, all layers, every n-th layer, or what it chooses by operation"
        )


def _framework(writer: Writer) -> None:
    """Compilation; a profile is what software does, and torchtitan does as it does."""
    compiled = writer.value("framework.compiled")
    if compiled is not None:
        writer.write("compile.enable", bool(compiled), "framework.compiled")
    else:
        writer.lines["compile.enable"] = True  # as the profile is
    framework = writer.value("framework")
    base = framework.get("base") if isinstance(framework, dict) else framework
    if base != PROFILE:
        writer.leave("framework", f"the file is for torchtitan, which does not run as {shorten(base)} does")
    else:
        writer.say("framework.base" if isinstance(framework, dict) else "framework", words="the file is torchtitan's")
    dispatchers = {value: name for name, value in table("torchtitan")["dispatchers"].items()}
    dispatcher = writer.value("training.moe.dispatcher")
    if dispatcher in dispatchers:
        name = "parallelism.expert_parallel_comm_backend"
        writer.write(name, dispatchers[dispatcher], "training.moe.dispatcher")


def _toml(writer: Writer) -> str:
    """The file: a table for each section, in the order in which they were written."""
    sections: dict[str, list[str]] = {}
    for name, value in writer.lines.items():
        section, _, key = name.rpartition(".")
        sections.setdefault(section, []).append(f"{key} = {_value(value)}")
    gpus = writer.value("parallel.dp") * writer.value("parallel.tp") * writer.value("parallel.pp")
    head = f"# for {gpus * writer.value('parallel.cp')} GPUs\n"
    return "\n".join([head, *(f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items())])


def _value(value: Any) -> str:
    """A value as TOML has it; a list of lists on a line each."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "\n".join(["[", *(f"  {json.dumps(inner)}," for inner in value), "]"])
    return json.dumps(value, ensure_ascii=False)


register(
    Exporter(
        name="torchtitan",
        title="torchtitan's TOML",
        about="A training file for torchtitan in its spelling of 2025: model flavour, degrees, batches, checkpointing.",
        suffix=".toml",
        export=export,
    )
)
