"""
torchtitan's TOML, in all its spellings: degrees have stood in ``[training]``, ``[experimental]`` and ``[parallelism]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainsim.errors import shorten
from trainsim.importers.findings import Findings
from trainsim.importers.formats.torchtitan_degrees import (
    SECTIONS,
    WHOSE,
    TitanDegrees,
    degrees_of,
    first,
    named,
    pipeline,
)
from trainsim.importers.formats.torchtitan_keys import KEYS
from trainsim.importers.importer import Importer, register
from trainsim.importers.reader import Reader
from trainsim.importers.source import Source
from trainsim.importers.tables import table, worded

OLD_BATCH, BATCH = "training.batch_size", "training.local_batch_size"
TABLES = {"training", "parallelism", "activation_checkpoint", "experimental", "compile", "optimizer", "float8"}


def sniff(source: Source) -> float:
    """Sure where a flavour of a model stands beside a length of sequences."""
    model, training = source.section("model"), source.section("training")
    if "flavor" in model and (source.suffix == ".toml" or source.has(*TABLES)):
        return 0.95
    degrees = any(str(key).endswith("_parallel_degree") for name in SECTIONS for key in source.section(name))
    return 0.8 if degrees else 0.5 if source.suffix == ".toml" and "seq_len" in training else 0.0


def load(source: Source) -> Findings:
    """The model, the degrees, the batches and everything that changes how a step runs."""
    reader = Reader(source.document, KEYS)
    reader.say("framework", "torchtitan")
    layers = _model(reader)
    degrees = degrees_of(reader)
    chunks = pipeline(reader, degrees, layers)
    _sharding(reader, degrees)
    _batches(reader, degrees, chunks)
    _numbers(reader, degrees)
    compiled = _compiled(reader)
    _tensor_parallel(reader, degrees, compiled)
    _recompute(reader)
    _optimizer(reader)
    return reader.findings("torchtitan")


def _model(reader: Reader) -> int | None:
    """Say the model; its number of layers, if it is known."""
    from trainsim.models.reading import load_model

    name, flavor = reader.text("model.name") or "llama3", reader.text("model.flavor")
    if not flavor:
        return None
    models = table("torchtitan")["flavors"]
    known = worded(models, name)
    found = worded(known[1], flavor) if known else None
    if found is None:
        names = f"; known: {', '.join(known[1] if known else models)}"
        words = f"{name} {flavor} is in no table here, so the model is left open: --set model=NAME{names}"
        reader.warn("model.flavor", words)
        return None
    model = found[1] if isinstance(found[1], str) else {"name": f"{name}-{found[0]}", **found[1]}
    reader.say("model", model, "model.flavor", "model.name")
    layers: int = load_model(model).layers
    return layers


def _sharding(reader: Reader, degrees: TitanDegrees) -> None:
    """Say who shares states, and what stays gathered."""
    reshard = reader.word("parallelism.fsdp_reshard_after_forward", ("default", "always", "never"))
    kind = reader.word("training.data_parallel_type", ("fsdp", "ddp"))  # of 2024
    shares = degrees.shard != 1 or degrees.cp > 1
    strategy = "ddp" if kind == "ddp" or not shares else "hsdp" if degrees.replicate > 1 else "fsdp"
    reader.say("sharding.strategy", strategy, *(["training.data_parallel_type"] if kind else []))
    if strategy == "hsdp" and degrees.shard:
        key = named(reader, "data_parallel_shard_degree")
        reader.say("sharding.shard_size", degrees.shard * degrees.cp, key)
    elif strategy == "hsdp":
        words = f"states are shared by dp x cp / {degrees.replicate} ranks: --set sharding.shard_size=N; here a node"
        reader.warn(named(reader, "data_parallel_replicate_degree"), words)
    if reshard == "never" and strategy != "ddp":
        reader.say("sharding.reshard_after_forward", False, "parallelism.fsdp_reshard_after_forward")
    elif reshard == "always" and degrees.pp == 1 and strategy != "ddp":
        reader.say("sharding.reshard_after_forward", True, "parallelism.fsdp_reshard_after_forward")
    elif reshard == "always" and degrees.pp > 1:
        words = "in a pipeline parameters stay gathered from the first forward to the last backward here"
        reader.warn("parallelism.fsdp_reshard_after_forward", words)
    if reader.flag("training.enable_cpu_offload"):
        both = {"optimizer": "cpu", "parameters": "cpu"}
        reader.say("sharding.offload", both, "training.enable_cpu_offload")


def _batches(reader: Reader, degrees: TitanDegrees, chunks: int) -> None:
    """Say batches: the local one is a replica's, with all its micro-batches."""
    reader.say("training.sequence_length", reader.whole("training.seq_len"), "training.seq_len")
    reader.assume("training.sequence_length", 2048, WHOSE)
    key = first(reader, BATCH, OLD_BATCH)
    local = reader.whole(key)
    size, source = _micro_batch(reader, degrees, chunks, key, local or 8)
    sources = [name for name in (key, source) if reader.has(name)]
    if sources:
        reader.say("training.micro_batch", size, *sources)
    else:
        reader.assume("training.micro_batch", size, f"{WHOSE} local_batch_size")
    count = (local or 8) // size
    whole = reader.whole("training.global_batch_size", low=-1)
    if whole in (None, -1):
        if whole:
            reader.use("training.global_batch_size", "one local batch of each replica")
        if degrees.pp > 1 and sources:
            reader.say("training.gradient_accumulation", count, *sources)
        else:
            reader.assume("training.gradient_accumulation", count, f"{WHOSE}: one local batch of each replica")
        return
    if whole == 0:
        raise reader.fail("training.global_batch_size", "0 is not a batch; -1 means one local batch of each replica")
    reader.say("training.global_batch", whole, "training.global_batch_size")
    if degrees.pp > 1 and (degrees.dp is None or whole != (local or 8) * degrees.dp):
        words = (
            "where it is more than one local batch of each replica the pipeline drains between them; here it does not"
        )
        reader.warn("training.global_batch_size", f"training.global_batch = {whole}; {words}")


def _micro_batch(reader: Reader, degrees: TitanDegrees, chunks: int, key: str, local: int) -> tuple[int, str]:
    """Sequences of a micro-batch, and the key that says so."""
    newer = "parallelism.pipeline_parallel_microbatch_size"
    older = named(reader, "pipeline_parallel_microbatches")
    if degrees.pp == 1:
        return local, key
    if reader.has(older) or key == OLD_BATCH or not reader.has("parallelism.pipeline_parallel_degree"):
        count = reader.whole(older)
        if count is None:
            count = degrees.pp * chunks
            reader.use(named(reader, "pipeline_parallel_degree"), f"{count} micro-batches, as torchtitan of 2024 does")
        if local % count:
            raise reader.fail(key, f"{local} sequences do not divide into {count} micro-batches")
        return local // count, older
    size = reader.whole(newer)
    if size is None:
        reader.use("parallelism.pipeline_parallel_degree", f"micro-batches of 1, {WHOSE}")
    if local % (size or 1):
        raise reader.fail(newer, f"{local} sequences of a local batch do not divide into micro-batches of {size}")
    return size or 1, newer


def _numbers(reader: Reader, degrees: TitanDegrees) -> None:
    """Say the types of numbers."""
    words = table("torchtitan")
    precisions: Mapping[str, str] = words["precisions"]
    compute, reduced = "training.mixed_precision_param", "training.mixed_precision_reduce"
    precision = precisions[reader.word(compute, precisions) or "bfloat16"]
    sources = [compute] if reader.has(compute) else []
    for kind in (*(reader.listing("model.converters") or []), *_old_float8(reader)):
        found = worded(words["converters"], str(kind))
        if found is None:
            reader.warn("model.converters", f"{shorten(kind)} is not modelled: linear layers stay as they are")
            continue
        precision, sources = found[1], ["model.converters"] if reader.has("model.converters") else sources
    if sources:
        reader.say("training.precision", precision, *sources)
    else:
        reader.assume("training.precision", precision, WHOSE)
    if reduce := reader.word(reduced, precisions):
        reader.say("training.gradient_dtype", precisions[reduce], reduced)
    if reader.word("training.dtype", precisions) == "bfloat16":
        _in_16_bits(reader)
    alone = degrees.tp == degrees.pp == degrees.cp == 1 and degrees.shard == 1
    if alone and precision == "bf16":
        reader.assume("training.autocast", True, "torchtitan without FSDP, tp, pp and cp computes under torch.autocast")
    if precision in ("fp8", "mxfp8"):
        _float8(reader)


def _in_16_bits(reader: Reader) -> None:
    """Say that weights, gradients and states are kept in 16 bits, as the profile of such a training has it."""
    from trainsim.frameworks import load_framework

    moved = load_framework(table("torchtitan")["all_16_bits"]).kernels.optimizer_bytes_per_parameter
    reader.say("framework.memory.states.weights", "training", "training.dtype")
    reader.say("framework.memory.states.accumulation", "training", "training.dtype")
    reader.say("framework.kernels.optimizer_bytes_per_parameter", moved, "training.dtype")


def _old_float8(reader: Reader) -> list[str]:
    """Converters that older files ask for in another way."""
    key = "float8.enable_float8_linear"
    if reader.flag(key):
        reader.use(key, "training.precision = fp8")
        return ["float8"]
    return []


def _float8(reader: Reader) -> None:
    """What of 8-bit linear layers can be set."""
    for section in ("quantize.linear.float8", "float8"):
        gather = f"{section}.enable_fsdp_float8_all_gather"
        if reader.flag(gather):
            reader.say("sharding.gather_dtype", "fp8", gather)
        recipe = reader.text(f"{section}.recipe_name")
        if recipe not in (None, "tensorwise"):
            reader.warn(f"{section}.recipe_name", f"{recipe}: scales per row are not modelled, one per tensor is")
    for section in ("quantize.linear.float8", "float8", "quantize.linear.mx", "mx"):
        key = f"{section}.filter_fqns"
        names = str(reader.raw(key)).split(",") if isinstance(reader.raw(key), str) else reader.listing(key)
        if names not in (None, ["output"]):
            words = "here all linear layers but the head are in 8 bits"
            reader.warn(key, f"{', '.join(map(str, names)) or 'nothing'} stays in 16 bits; {words}")
        elif names is not None:
            reader.use(key, "the head stays in 16 bits")


def _compiled(reader: Reader) -> bool:
    """Say whether blocks are compiled."""
    key = first(reader, "compile.enable", "training.compile")
    compiled = bool(reader.flag(key))
    if reader.has(key):
        reader.say("framework.compiled", compiled, key)
    else:
        reader.assume("framework.compiled", False, WHOSE)
    parts = reader.listing("compile.components")
    if parts is not None and compiled and set(map(str, parts)) != {"model", "loss"}:
        reader.warn("compile.components", f"model and loss are compiled here, not {', '.join(map(str, parts))} alone")
    elif parts is not None:
        reader.use("compile.components", "model and loss, where anything is compiled")
    return compiled


def _tensor_parallel(reader: Reader, degrees: TitanDegrees, compiled: bool) -> None:
    """Say what goes with tensor parallelism."""
    overlap = named(reader, "enable_async_tensor_parallel")
    disabled, enabled = named(reader, "disable_loss_parallel"), named(reader, "enable_loss_parallel")
    if degrees.tp == 1:
        return
    key = named(reader, "tensor_parallel_degree")
    reader.say("parallel.sequence_parallel", True, key)
    if reader.flag(overlap) and compiled:
        reader.say("training.tp_overlap", "async", overlap)
    else:
        if reader.has(overlap):
            reader.ignore(overlap, "torchtitan overlaps where it is asked to and blocks are compiled")
        reader.assume("training.tp_overlap", "none", WHOSE)
    if reader.flag(disabled):
        reader.say("training.loss_parallel", False, disabled)
    elif reader.flag(enabled) is False:
        reader.say("training.loss_parallel", False, enabled)


def _recompute(reader: Reader) -> None:
    """Say what is recomputed."""
    mode_key, option_key = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
    mode = reader.word(mode_key, ("none", "selective", "full", "memory_budget"))
    option = reader.raw(option_key)
    if mode == "memory_budget":
        reader.warn(mode_key, "what the compiler recomputes within a budget of memory is not modelled; here nothing is")
        return
    if mode in ("none", "full"):
        reader.say("training.recompute", mode, mode_key)
        return
    if str(option) == "op":
        recompute: dict[str, Any] = {"mode": "selective", "policy": "op"}
    else:
        every = 2 if option is None else reader.whole(option_key)
        recompute = {"mode": "full", "every": every}
    if mode or option is not None:
        reader.say("training.recompute", recompute, *(k for k in (mode_key, option_key) if reader.has(k)))
    else:
        reader.assume("training.recompute", recompute, WHOSE)


def _optimizer(reader: Reader) -> None:
    """Say the optimizer and when it runs."""
    names = table("torchtitan")["optimizers"]
    if name := reader.word("optimizer.name", names):
        reader.say("training.optimizer", names[name], "optimizer.name")
    else:
        reader.assume("training.optimizer", "adamw", WHOSE)
    implementation = reader.word("optimizer.implementation", ("fused", "foreach", "for-loop"))
    if implementation in ("foreach", "for-loop") or reader.flag("optimizer.fused") is False:
        key = "optimizer.implementation" if implementation else "optimizer.fused"
        reader.warn(key, "the update is one fused kernel here; others read and write more")
    if reader.flag("optimizer.early_step_in_backward"):
        reader.say("training.optimizer_in_backward", True, "optimizer.early_step_in_backward")


register(
    Importer(
        name="torchtitan",
        title="torchtitan's TOML",
        about="The TOML files of torchtitan (2024 to 2026): model, degrees, batches, checkpointing, float8, compile.",
        leaves_open="The machine and, with a shard degree of -1, how many GPUs: no key says either.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "`local_batch_size` is a replica's and holds all its micro-batches. With a pipeline they are of "
            "`pipeline_parallel_microbatch_size`, or in files of 2024 as many as there are stages.",
            "A shard degree of -1 is whatever is left, so `parallel.dp` follows from the cluster.",
            "Layers are dealt to stages as torchtitan does, embedding and head counting as a layer each.",
            "A flavour that is in no table leaves the model open.",
        ),
    )
)
