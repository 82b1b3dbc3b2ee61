"""
A scenario as DeepSpeed's ds_config.json: batches, precision and what ZeRO shares.
"""

from __future__ import annotations

import json
from typing import Any

from trainsim.exporters.exporter import Exported, Exporter, Writer, register
from trainsim.scenario.scenario import Scenario

ZERO = "zero_optimization"
STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "mics": 3, "zeropp": 3}
STAGE3 = {
    "prefetch_bucket": "stage3_prefetch_bucket_size",
    "max_live_parameters": "stage3_max_live_parameters",
    "reuse_distance": "stage3_max_reuse_distance",
    "persistence_threshold": "stage3_param_persistence_threshold",
    "sub_group": "sub_group_size",
    "quantized_weights": "zero_quantized_weights",
    "quantized_gradients": "zero_quantized_gradients",
    "secondary_partition": "zero_hpz_partition_size",
}
OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD", "lion": "Lion", "muon": "Muon"}
SCRIPT = "the script says that, or Megatron-DeepSpeed's arguments; DeepSpeed's configuration does not"
ELSEWHERE = ("model", "parallel", "pipeline")
PROFILES = ("deepspeed", "deepspeed-bf16", "transformers-deepspeed")


def export(scenario: Scenario) -> Exported:
    """The JSON, and what of the scenario it does not say."""
    writer = Writer(scenario)
    _batches(writer)
    _numbers(writer)
    _zero(writer)
    _offload(writer)
    _framework(writer)
    for section in ELSEWHERE:
        writer.leave(section, SCRIPT)
    return writer.exported("deepspeed", json.dumps(_nested(writer.lines), indent=2) + "\n", SCRIPT)


def _batches(writer: Writer) -> None:
    """All three numbers, which have to agree."""
    micro, whole, dp = (writer.value(key) for key in ("training.micro_batch", "training.global_batch", "parallel.dp"))
    writer.write("train_batch_size", whole, "training.global_batch")
    writer.write("train_micro_batch_size_per_gpu", micro, "training.micro_batch")
    writer.write("gradient_accumulation_steps", whole // (micro * dp), "training.gradient_accumulation")


def _numbers(writer: Writer) -> None:
    """Precision, the types of gradients, the optimizer."""
    precision = writer.value("training.precision")
    if precision in ("bf16", "fp16") and not writer.value("training.autocast"):
        writer.write(f"{precision}.enabled", True, "training.precision")
    elif precision in ("bf16", "fp16"):
        writer.write("torch_autocast.enabled", True, "training.autocast", "training.precision")
        writer.write("torch_autocast.dtype", {"bf16": "bfloat16", "fp16": "float16"}[precision], "training.precision")
    elif precision == "fp32":
        writer.say("training.precision", words="nothing: neither bf16 nor fp16 is enabled")
    else:
        writer.leave("training.precision", f"DeepSpeed has no {precision}; layers of Transformer Engine would bring it")
    scaling = writer.value("training.loss_scaling")
    if precision == "fp16" and scaling == "dynamic":
        writer.write("fp16.loss_scale", 0, "training.loss_scaling")
    elif precision == "fp16":
        writer.leave("training.loss_scaling", "which number the loss is scaled with is not in a scenario")
    if (kind := writer.given("training.gradient_dtype")) is not None:
        writer.write("communication_data_type", kind, "training.gradient_dtype")
    if (kind := writer.given("training.accumulation_dtype")) is not None:
        writer.write("data_types.grad_accum_dtype", kind, "training.accumulation_dtype")
    optimizer = writer.value("training.optimizer")
    if isinstance(optimizer, str) and optimizer in OPTIMIZERS:
        writer.write("optimizer.type", OPTIMIZERS[optimizer], "training.optimizer")
    else:
        writer.leave("training.optimizer", "DeepSpeed has no optimizer that keeps the same; the script makes it")


def _zero(writer: Writer) -> None:
    """The stage, buckets and thresholds in elements."""
    strategy = writer.value("sharding.strategy")
    if strategy not in STAGES:
        writer.leave("sharding.strategy", f"DeepSpeed has no {strategy}; {', '.join(STAGES)} it has")
        return
    stage = STAGES[strategy]
    writer.write(f"{ZERO}.stage", stage, "sharding.strategy")
    if writer.given("sharding.overlap") is not None:
        writer.write(f"{ZERO}.overlap_comm", writer.value("sharding.overlap"), "sharding.overlap")
    if (bucket := writer.value("sharding.reduce_bucket")) is not None and stage:
        writer.write(f"{ZERO}.reduce_bucket_size", int(bucket), "sharding.reduce_bucket")
    if strategy == "mics":
        writer.write(f"{ZERO}.mics_shard_size", writer.value("sharding.shard_size"), "sharding.shard_size")
    for option, name in STAGE3.items():
        value = writer.value(f"sharding.{option}")
        if value is not None and stage == 3:
            plain = value if isinstance(value, bool) else int(value)
            writer.write(f"{ZERO}.{name}", plain, f"sharding.{option}")
    if strategy == "zeropp":
        writer.say("sharding.strategy", words=f"{ZERO}.stage and zero_*")


def _offload(writer: Writer) -> None:
    """Where states live that are not on the GPU; DeepSpeed offloads parameters, and to drives, in stage 3 only."""
    offload = writer.value("sharding.offload", {})
    stage = STAGES.get(writer.value("sharding.strategy"), 0)
    for name, key in {"optimizer": "optimizer", "param": "parameters"}.items():
        device = offload.get(key, "none")
        if device == "none":
            continue
        least = 3 if device == "nvme" or name == "param" else 1
        if stage < least:
            writer.leave(f"sharding.offload.{key}", f"DeepSpeed does that from stage {least} on, this is {stage}")
            continue
        writer.write(f"{ZERO}.offload_{name}.device", device, f"sharding.offload.{key}")
        if name == "optimizer":
            _drives(writer, offload, stage)
    if offload.get("delayed_update"):
        writer.leave("sharding.offload.delayed_update", "DeepSpeed does not delay an update by a step")


def _drives(writer: Writer, offload: dict[str, Any], stage: int) -> None:
    """The part that is offloaded, and how states come from drives and go there."""
    section = f"{ZERO}.offload_optimizer"
    if offload.get("ratio") is not None and stage == 3:
        writer.write(f"{section}.ratio", offload["ratio"], "sharding.offload.ratio")
    for name in ("pipeline_read", "pipeline_write", "buffer_count"):
        if offload.get(name) is not None and offload.get("optimizer") == "nvme":
            writer.write(f"{section}.{name}", offload[name], f"sharding.offload.{name}")


def _framework(writer: Writer) -> None:
    """The profile is what software does: here DeepSpeed's."""
    framework = writer.value("framework")
    base = framework.get("base") if isinstance(framework, dict) else framework
    if base != "deepspeed" or isinstance(framework, dict):
        known = base in PROFILES
        why = "the file does not say which kernels a model brings" if known else "the file is for DeepSpeed"
        writer.leave("framework", why)
    else:
        writer.say("framework", words="the file is DeepSpeed's")
    if writer.value("training.activation_offload") == "cpu":
        writer.write("activation_checkpointing.cpu_checkpointing", True, "training.activation_offload")
    writer.leave("training.recompute", "the model's code says what is recomputed")


def _nested(lines: dict[str, Any]) -> dict[str, Any]:
    """Dotted keys as sections."""
    out: dict[str, Any] = {}
    for name, value in lines.items():
        here = out
        *above, last = name.split(".")
        for part in above:
            here = here.setdefault(part, {})
        here[last] = value
    return out


register(
    Exporter(
        name="deepspeed",
        title="DeepSpeed's ds_config.json",
        about="The configuration that DeepSpeed is given: batches, precision, ZeRO and what it offloads.",
        suffix=".json",
        export=export,
    )
)
