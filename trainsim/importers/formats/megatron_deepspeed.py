"""
What Megatron-DeepSpeed says to DeepSpeed: its stage, and a configuration that a script often writes by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainsim.importers.formats.megatron_arguments import Arguments

STAGES = ("ddp", "zero1", "zero2", "zero3")
ALSO_ARGUMENTS = ("train_micro_batch_size_per_gpu", "train_batch_size", "fp16", "bf16", "zero_optimization.stage")
"""Keys of a configuration that arguments of Megatron-DeepSpeed say as well."""
QUIET = ("gradient_clipping", "steps_per_print", "wall_clock_breakdown", "zero_allow_untested_optimizer", "tensorboard",
         "flops_profiler", "prescale_gradients", "curriculum_type")  # fmt: skip
"""Keys without effect on speed and memory."""
WORDS = "states that are offloaded, buckets, types of numbers"


def configuration(args: Arguments) -> None:
    """Read DeepSpeed's configuration as a further file, or as the script writes it."""
    key = args.key("deepspeed_config")
    if key in args.argued.unknown:
        args.warn(key, f"{args.argued.unknown[key]} is known to the job only, and it would say: {WORDS}")
    name = args.name("deepspeed_config") if args.has(key) else None
    if name is None:
        return
    if name not in args.argued.written:
        args.refer(key, WORDS)
        return
    config = _config(args.argued.written[name])
    if config is None:
        args.warn(key, f"the script writes it, with values that are not known here: {WORDS}")
        return
    args.use(key, "the script writes it; what it says beside the arguments is reported")
    stage = config.get("zero_optimization", {})
    stage = stage.get("stage") if isinstance(stage, Mapping) else None
    own = args.count("zero-stage", low=0)
    if isinstance(stage, int) and own is not None and stage != own:
        args.warn(key, f"the script writes stage {stage}, but --zero-stage is {own}, which counts here")
    others = [name for name in _names(config) if name not in ALSO_ARGUMENTS and name.partition(".")[0] not in QUIET]
    others = [name for name in others if name.partition(".")[0] not in ("fp16", "bf16")]
    if others:
        args.warn(key, f"not read, for the script writes it: {', '.join(others[:8])}; give the file itself")


def stage(args: Arguments, low: str) -> None:
    """Say DeepSpeed's stage; with bf16 its optimizer shards states in stage 0 as well."""
    number = args.count("zero-stage", low=0)
    key = args.key("deepspeed_config")
    elsewhere = args.has(key) and args.name("deepspeed_config") not in args.argued.written
    if number is None and elsewhere:
        return
    if number not in (None, 0, 1, 2, 3):
        raise args.fail(args.key("zero-stage"), f"{number} is not a ZeRO stage; 0, 1, 2 and 3 are")
    sources = args.given("zero-stage")
    strategy = STAGES[1 if number is None else number]
    if strategy == "ddp" and low == "bf16":
        strategy = "zero1"
        for name in sources:
            args.use(name, "sharding.strategy = zero1: DeepSpeed's BF16_Optimizer shards states in stage 0 as well")
        if elsewhere:
            words = "in bf16 DeepSpeed's BF16_Optimizer shards states in stage 0 as well, whatever the file's stage is"
            args.warn(key, f"{words}: --set sharding.strategy=zero1")
    if sources:
        args.say("sharding.strategy", strategy, *sources, weak=elsewhere)
    else:
        args.assume("sharding.strategy", strategy, "Megatron-DeepSpeed's default, --zero-stage 1")
    args.say("sharding.reduce_bucket", args.count("zero-reduce-bucket-size"), *args.given("zero-reduce-bucket-size"))


def _config(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _names(config: Mapping[str, Any]) -> list[str]:
    """Dotted names of two levels."""
    out: list[str] = []
    for key, value in config.items():
        out += [f"{key}.{inner}" for inner in value] if isinstance(value, Mapping) else [str(key)]
    return out
