"""
DeepSpeed's configuration, ``ds_config.json``: batches, precision and what ZeRO shares.
"""

from __future__ import annotations

from trainsim.documents.document import Document
from trainsim.importers.deepspeed_keys import KEYS, SWITCHED, ZERO
from trainsim.importers.deepspeed_zero import AUTO, read_zero
from trainsim.importers.findings import Findings
from trainsim.importers.importer import Importer, register
from trainsim.importers.optimizers import say_optimizer
from trainsim.importers.reader import Reader, leaves
from trainsim.importers.source import Source

BATCHES = {
    "train_batch_size": "global_batch",
    "train_micro_batch_size_per_gpu": "micro_batch",
    "gradient_accumulation_steps": "gradient_accumulation",
}
TYPES = {"fp32": "fp32", "float32": "fp32", "fp16": "fp16", "float16": "fp16", "half": "fp16",
         "bf16": "bf16", "bfloat16": "bf16"}  # fmt: skip
PROFILES = ("deepspeed", "deepspeed-bf16", "transformers-deepspeed")


def sniff(source: Source) -> float:
    """Sure of ZeRO's section, and of a batch beside something else that only DeepSpeed has."""
    own = {known.name.split(".")[0] for known in KEYS}
    others = sum(key not in own for key in source.data)
    if _wrapper(source):
        return 0.4
    if source.has(ZERO) or (source.has(*BATCHES) and source.has(*own) >= 2):
        return 0.9 if others <= source.has(*own) else 0.3
    return 0.0


def load(source: Source) -> Findings:
    """What the file says, or the one mapping in it that is about DeepSpeed."""
    document = source.document
    if not (key := _wrapper(source)):
        return read_document(document)
    outer = Reader(document, ())
    inner = Document(document.name, document.data[key], document.origin.part((key,)), document.error)
    outer.adopt(key, read_document(inner))
    return outer.findings("deepspeed")


def _wrapper(source: Source) -> str:
    """The key of the mapping that holds the configuration, where it is all that the file holds; else empty."""
    found = [key for key, value in source.data.items() if isinstance(value, dict) and ZERO in value]
    return str(found[0]) if len(found) == len(source.data) == 1 else ""


def read_document(document: Document) -> Findings:
    """Facts of the batch, the precision, ZeRO, degrees and recomputation; everything else is told."""
    reader = Reader(document, KEYS)
    for name, key in BATCHES.items():
        value = reader.whole(name, besides=AUTO)
        if value == "auto":
            reader.leave_open(name, f"training.{key}", "the Hugging Face Trainer fills in its own arguments for auto")
        else:
            reader.say(f"training.{key}", value, name)
    stage = read_zero(reader)
    precision = _precision(reader, stage)
    _types(reader)
    if reader.has("optimizer.type"):
        say_optimizer(reader, "optimizer.type")
    else:
        reader.assume("training.optimizer", "adamw", "no optimizer is named, so it is the script's own: AdamW is taken")
    _degrees(reader)
    _recomputation(reader)
    _compiled(reader)
    _switched(reader)
    _framework(reader, precision, stage)
    return reader.findings("deepspeed")


def _precision(reader: Reader, stage: int) -> str:
    sixteen = [name for name in ("bf16", "bfloat16", "fp16") if reader.flag(f"{name}.enabled", besides=AUTO)]
    on = [name for name in sixteen if reader.raw(f"{name}.enabled") != "auto"]
    if len(on) > 1:
        raise reader.fail(f"{on[1]}.enabled", f"{on[0]}.enabled is true as well; DeepSpeed allows only one of them")
    for name in set(sixteen) - set(on):
        reader.leave_open(f"{name}.enabled", "training.precision", "the Trainer's arguments bf16 and fp16 decide")
    precision = _on(reader, on[0]) if on else ""
    for name in ("torch_autocast", "amp"):
        if not precision and reader.flag(f"{name}.enabled", besides=AUTO) is True:
            kind = reader.word("torch_autocast.dtype", TYPES) if name == "torch_autocast" else "fp16"
            precision = TYPES[kind or "bf16"]
            _autocast(reader, f"{name}.enabled", precision, stage)
    if not precision and not sixteen:
        reader.assume("training.precision", "fp32", "DeepSpeed's default, where neither bf16 nor fp16 is enabled")
    return precision


def _autocast(reader: Reader, key: str, precision: str, stage: int) -> None:
    """16 bits that are cast from weights in fp32, so that there is no copy of these."""
    sources = [name for name in (key, "torch_autocast.dtype") if reader.has(name)]
    reader.say("training.precision", precision, *sources)
    if stage:
        reader.warn(key, f"not modelled: autocast under ZeRO; weights in {precision} with fp32 copies are simulated")
        return
    reader.say("training.autocast", True, key)
    reader.say("framework.memory.states.weights", "fp32", key)
    reader.say("framework.memory.states.master", False, key)


def _on(reader: Reader, section: str) -> str:
    """The precision of a section that is on, and how its loss is scaled."""
    precision = "fp16" if section == "fp16" else "bf16"
    kind = reader.word("fp16.type", TYPES) if section == "fp16" else None
    if kind and TYPES[kind] == "bf16":
        precision = "bf16"
        reader.say("training.precision", precision, "fp16.type")
    reader.say("training.precision", precision, f"{section}.enabled")
    scale = reader.number("fp16.loss_scale", besides=AUTO)
    if precision == "fp16" and scale not in (None, "auto"):
        reader.say("training.loss_scaling", "static" if scale else "dynamic", "fp16.loss_scale")
    return precision


def _types(reader: Reader) -> None:
    for name, key in (
        ("communication_data_type", "gradient_dtype"),
        ("data_types.grad_accum_dtype", "accumulation_dtype"),
    ):
        if reader.raw(name) == "auto":
            reader.ignore(name, "the precision of training")
        elif kind := reader.word(name, TYPES):
            reader.say(f"training.{key}", TYPES[kind], name)


def _degrees(reader: Reader) -> None:
    for name in ("tensor_parallel.autotp_size", "tensor_parallel.tp.tp_size", "tensor_parallel.tp_size"):
        if (size := reader.whole(name, low=0)) == 0:
            reader.ignore(name, "0: not cut")
        else:
            reader.say("parallel.tp", size, name)
    if (parallel := reader.flag("tensor_parallel.vocab_parallel_lm_head")) is not None:
        reader.say("training.loss_parallel", parallel, "tensor_parallel.vocab_parallel_lm_head")
    if reader.flag("expert_parallel.enabled"):
        experts = reader.whole("expert_parallel.autoep_size")
        reader.say("parallel.ep", experts, "expert_parallel.enabled", "expert_parallel.autoep_size")
    ranks = reader.whole("sequence_parallel_size")
    reader.say("parallel.cp", ranks, "sequence_parallel_size")
    if ranks and ranks > 1:
        reader.say("parallel.context_parallel", "ulysses", "sequence_parallel_size")
    stages = reader.whole("pipeline.stages", besides=AUTO)
    if stages == "auto":
        reader.leave_open("pipeline.stages", "parallel.pp", "the PipelineModule of the model decides")
    else:
        reader.say("parallel.pp", stages, "pipeline.stages")


def _recomputation(reader: Reader) -> None:
    """Inputs of recomputed layers on the host say that there are any; the other keys of the section do not."""
    interval = reader.whole("pipeline.activation_checkpoint_interval", low=0)
    if interval == 0:
        reader.ignore("pipeline.activation_checkpoint_interval", "0: nothing is recomputed")
    elif interval:
        reader.say("training.recompute", "full", "pipeline.activation_checkpoint_interval")
        if interval > 1:
            words = f"not modelled: inputs of every {interval}th layer are kept; here those of each layer are"
            reader.warn("pipeline.activation_checkpoint_interval", words)
    if reader.flag("activation_checkpointing.cpu_checkpointing"):
        reader.say("training.activation_offload", "cpu", "activation_checkpointing.cpu_checkpointing")
        reader.say("training.recompute", "full", "activation_checkpointing.cpu_checkpointing")
    elif reader.mapping("activation_checkpointing"):
        words = "the section recomputes nothing by itself: the model's code says what is; --set training.recompute=full"
        reader.leave_open("activation_checkpointing", "training.recompute", words)


def _compiled(reader: Reader) -> None:
    for name in ("compile.deepcompile", "compile.enabled"):
        if reader.flag(name):
            reader.say("framework.compiled", True, name)
    if reader.flag("compile.deepcompile"):
        words = "not modelled: DeepCompile's own passes, which choose what is gathered ahead and what stays gathered"
        reader.warn("compile.deepcompile", words)


def _switched(reader: Reader) -> None:
    """Sections that would change a step, where they are on."""
    for section, what in SWITCHED.items():
        inner = reader.mapping_or_flag(section)
        if not inner:
            continue
        names = [f"{section}.{name}" for name, _ in leaves(inner)] if not isinstance(inner, bool) else [section]
        switches = [name for name in names if name.rpartition(".")[2] == "enabled"]
        if switches and not any(reader.flag(name) for name in switches):
            reader.ignore(section, "off")
        else:
            reader.warn(section, f"not modelled: {what}")


def _framework(reader: Reader, precision: str, stage: int) -> None:
    automatic = any(value == "auto" for _, value in leaves(reader.document.data))
    summed = reader.raw("data_types.grad_accum_dtype")
    if precision == "bf16" and stage == 1 and TYPES.get(str(summed)) == "fp32":
        why = "DeepSpeed's BF16_Optimizer takes the place of ZeRO-1 in bf16 with fp32 sums of gradients"
        reader.assume("framework", "deepspeed-bf16", why)
    elif automatic:
        reader.assume("framework", "transformers-deepspeed", "auto is for the Hugging Face Trainer to fill in")
    else:
        why = "DeepSpeed with kernels that are fused; a model as transformers runs it is transformers-deepspeed"
        reader.assume("framework", "deepspeed", why)


register(
    Importer(
        name="deepspeed",
        title="DeepSpeed's ds_config.json",
        about="The configuration that DeepSpeed, or a tool on top of it, is given: JSON, or the same as YAML.",
        leaves_open="The model, the machine, sequence lengths, and what the script itself sets: the pipeline, tensor "
        "parallelism, whether layers are recomputed.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "Buckets and thresholds are numbers of elements, not bytes.",
            "`auto` is for the Hugging Face Trainer: three buckets follow its rule (the scenario's `auto`), batches "
            "and precision are its arguments and stay open, all else is DeepSpeed's default.",
            "Any one of the three batch sizes may be missing; all together have to agree with the number of replicas.",
            "Without `zero_optimization` it is stage 0; in a pipeline DeepSpeed takes stages 0 and 1 only.",
        ),
    )
)
