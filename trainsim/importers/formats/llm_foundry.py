"""
llm-foundry's YAML: a model, loaders, an optimizer and Composer's FSDP, with variables in between.
"""

from __future__ import annotations

from typing import Any

from trainsim.errors import shorten
from trainsim.importers.findings import Findings
from trainsim.importers.formats.llm_foundry_keys import KEYS
from trainsim.importers.formats.llm_foundry_models import say_model
from trainsim.importers.importer import Effect, Importer, register
from trainsim.importers.interpolation import interpolated
from trainsim.importers.matching import match
from trainsim.importers.reader import Reader
from trainsim.importers.source import Source
from trainsim.importers.tables import table

SURE = ("max_seq_len", "train_loader", "max_duration", "global_train_batch_size", "device_train_microbatch_size",
        "fsdp_config")  # fmt: skip
WHOSE = "llm-foundry's default"


def sniff(source: Source) -> float:
    """Sure of Composer's own words for batches beside a model."""
    own = source.has("global_train_batch_size", "device_train_microbatch_size", "device_train_batch_size")
    return 0.95 if own and source.has("model", "variables") else 0.6 if source.has(*SURE) > 2 else 0.0


def load(source: Source) -> Findings:
    """The model, the batches, FSDP and the optimizer."""
    found = interpolated(source.document, "variables")
    reader = Reader(found.document, KEYS)
    for key, why in found.unknown.items():
        known = match(key, KEYS)
        if known and known.effect is Effect.READ:
            reader.warn(key, f"open: {why}")
    reader.say("framework", "llm-foundry")
    say_model(reader)
    _batches(reader)
    _numbers(reader)
    _fsdp(reader)
    _optimizer(reader)
    if reader.mapping("compile_config") is not None:
        reader.say("framework.compiled", True, "compile_config")
    return reader.findings("llm-foundry")


def _batches(reader: Reader) -> None:
    """Say the batches; what ``auto`` would find is open."""
    reader.say("training.sequence_length", reader.whole("max_seq_len"), "max_seq_len")
    micro = reader.whole("device_train_microbatch_size", besides=("auto",)) if _is_whole(reader) else None
    if micro == "auto" or not reader.has("device_train_microbatch_size"):
        words = "as many sequences as fit, which is found when it runs: --set training.micro_batch=N"
        reader.leave_open("device_train_microbatch_size", "training.micro_batch", words)
    else:
        reader.say("training.micro_batch", micro, "device_train_microbatch_size")
    whole, mine = reader.whole("global_train_batch_size"), reader.whole("device_train_batch_size")
    reader.say("training.global_batch", whole, "global_train_batch_size")
    if whole is None and mine is not None and isinstance(micro, int):
        if mine % micro:
            raise reader.fail(
                "device_train_batch_size", f"{mine} sequences do not divide into micro-batches of {micro}"
            )
        reader.say("training.gradient_accumulation", mine // micro, "device_train_batch_size")
    accumulation = reader.whole("device_train_grad_accum", besides=("auto",))
    if whole is None and mine is None and isinstance(accumulation, int):
        reader.say("training.gradient_accumulation", accumulation, "device_train_grad_accum")


def _is_whole(reader: Reader) -> bool:
    """Whether the micro-batch is of whole sequences; Composer also takes parts of one."""
    value = reader.raw("device_train_microbatch_size")
    if isinstance(value, float) and 0 < value < 1:
        words = f"{value:g}: parts of a sequence are not modelled; here it is one"
        reader.warn("device_train_microbatch_size", words)
        return False
    return True


def _numbers(reader: Reader) -> None:
    """Say the precision."""
    words = table("llm_foundry")["precisions"]
    name = reader.word("precision", words)
    entry = words[name or "amp_bf16"]
    for key, value in entry.items():
        if name:
            reader.say(f"training.{key}", value, "precision")
        else:
            reader.assume(f"training.{key}", value, f"{WHOSE}, amp_bf16")


def _fsdp(reader: Reader) -> None:
    """Say who shares states, and what is recomputed."""
    section = "fsdp_config" if reader.has("fsdp_config") else "parallelism_config.fsdp"
    if reader.mapping(section) is None:
        reader.say("sharding.strategy", "ddp")
        return
    words = table("llm_foundry")
    name = reader.word(f"{section}.sharding_strategy", words["strategies"])
    for key, value in words["strategies"][name or "FULL_SHARD"].items():
        if name:
            reader.say(f"sharding.{key}", value, f"{section}.sharding_strategy")
        else:
            reader.assume(f"sharding.{key}", value, f"{WHOSE}, FULL_SHARD")
    if name == "NO_SHARD":
        return
    kind = reader.word(f"{section}.mixed_precision", words["mixed_precisions"])
    if kind and reader.raw("precision") != "fp32":
        reduced = words["mixed_precisions"][kind]
        low = "fp16" if reader.raw("precision") == "amp_fp16" else "bf16"
        reader.say("training.gradient_dtype", low if reduced == "low" else reduced, f"{section}.mixed_precision")
    if shard := reader.whole(f"{section}.data_parallel_shard_degree", low=-1):
        reader.say("sharding.shard_size", shard if shard > 0 else None, f"{section}.data_parallel_shard_degree")
    _flights(reader, section)
    _checkpointing(reader, section)


def _flights(reader: Reader, section: str) -> None:
    """Say what is gathered ahead, and what lives on the host."""
    if (limit := reader.flag(f"{section}.limit_all_gathers")) is not None:
        reader.say("sharding.limit_all_gathers", limit, f"{section}.limit_all_gathers")
    if ahead := reader.flag(f"{section}.forward_prefetch"):
        reader.say("sharding.forward_prefetch", ahead, f"{section}.forward_prefetch")
    prefetches = table("llm_foundry")["prefetches"]
    when = reader.word(f"{section}.backward_prefetch", prefetches)
    if when and reader.raw(f"{section}.sharding_strategy") in ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2"):
        words = "parameters stay gathered until their backward, so nothing is fetched ahead"
        reader.ignore(f"{section}.backward_prefetch", words)
    elif when:
        reader.say("sharding.backward_prefetch", prefetches[when], f"{section}.backward_prefetch")
    if reader.flag(f"{section}.cpu_offload"):
        both = {"optimizer": "cpu", "parameters": "cpu"}
        reader.say("sharding.offload", both, f"{section}.cpu_offload")


def _checkpointing(reader: Reader, section: str) -> None:
    """Say what is recomputed or sent to the host."""
    on = reader.flag(f"{section}.activation_checkpointing")
    if on is not None:
        reader.say("training.recompute", "full" if on else "none", f"{section}.activation_checkpointing")
    if reader.flag(f"{section}.activation_cpu_offload"):
        reader.say("training.activation_offload", "cpu", f"{section}.activation_cpu_offload")
    target = reader.raw("model.activation_checkpointing_target")
    if on and target not in (None, "mptblock", ["mptblock"]):
        words = f"{shorten(target)}: whole layers are recomputed here"
        reader.warn("model.activation_checkpointing_target", words)


def _optimizer(reader: Reader) -> None:
    """Say the optimizer."""
    from trainsim.optimizers import OPTIMIZERS

    name: Any = reader.text("optimizer.name")
    known = table("llm_foundry")["optimizers"]
    if name is None:
        return
    optimizer = known.get(name)
    if optimizer in OPTIMIZERS.names():
        reader.say("training.optimizer", optimizer, "optimizer.name")
    else:
        reader.warn("optimizer.name", f"{name} is not modelled: adam is used, or --set training.optimizer=NAME")


register(
    Importer(
        name="llm-foundry",
        title="llm-foundry's YAML",
        about="llm-foundry's training files: MPT and Hugging Face models, batches, Composer's FSDP, `${variables}`.",
        leaves_open="The machine and how many GPUs; with `device_train_microbatch_size: auto` the micro-batch.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "`${variables.max_seq_len}` is looked up in the file; an environment is not read.",
            "`precision: amp_bf16` is torch.autocast over fp32 weights.",
            "Without `fsdp_config` replicas are those of DDP.",
            "MPT's sizes that a file leaves out are MPTConfig's, as its positions and biases are.",
        ),
    )
)
