"""
calculon's JSON: an execution, a model (application) and a system are a file each.
"""

from __future__ import annotations

from math import prod

from trainsim.importers.findings import Findings
from trainsim.importers.importer import Importer, no_effect, not_modelled, read, register
from trainsim.importers.machines import gpu_of
from trainsim.importers.reader import Reader
from trainsim.importers.source import Source
from trainsim.importers.tables import table

EXECUTION = ("num_procs", "tensor_par", "pipeline_par", "data_par", "microbatch_size")
MODEL = ("hidden", "attn_heads", "attn_size", "num_blocks", "seq_size")
SYSTEM = ("matrix", "vector", "mem1", "networks")
WHOSE = "calculon's default"
DEGREES = {"tensor_par": "tp", "pipeline_par": "pp", "data_par": "dp"}


def sniff(source: Source) -> float:
    """Sure of the keys that only one of its kinds of files has together."""
    return max(source.has(*keys) / len(keys) for keys in (EXECUTION, MODEL, SYSTEM)) * 0.95


def load(source: Source) -> Findings:
    """An execution, a model or a system."""
    reader = Reader(source.document, KEYS)
    if source.has(*EXECUTION) >= 2:
        _execution(reader)
    if source.has(*MODEL) >= 2:
        _model(reader)
    if source.has(*SYSTEM) >= 2:
        _system(reader)
    return reader.findings("calculon")


def _execution(reader: Reader) -> None:
    """Degrees, batches, and what is sharded, recomputed and offloaded."""
    words = table("calculon")
    if reader.flag("training") is False:
        raise reader.fail("training", "an execution without training has no training step")
    degrees = _degrees(reader)
    reader.say("training.global_batch", reader.whole("batch_size"), "batch_size")
    reader.say("training.micro_batch", reader.whole("microbatch_size"), "microbatch_size")
    if datatype := reader.word("datatype", words["datatypes"]):
        reader.say("training.precision", words["datatypes"][datatype], "datatype")
    if recompute := reader.word("activation_recompute", words["recompute"]):
        reader.say("training.recompute", words["recompute"][recompute], "activation_recompute")
    chunks = reader.whole("pipeline_interleaving")
    reader.say("pipeline.chunks", chunks if degrees["pp"] != 1 else None, "pipeline_interleaving")
    sharded = reader.flag("optimizer_sharding")
    if sharded is not None:
        reader.say("sharding.strategy", "zero1" if sharded else "ddp", "optimizer_sharding")
    overlap = reader.flag("data_par_overlap")
    reader.say("sharding.overlap", overlap if degrees["dp"] != 1 else None, "data_par_overlap")
    if reader.word("attention_type", ("multihead", "multiquery")) == "multiquery":
        reader.say("model.kv_heads", 1, "attention_type")
    _tensor_parallel(reader, degrees["tp"] or 1, str(recompute))
    _kernels(reader)


def _kernels(reader: Reader) -> None:
    """What is one kernel, and what lives on the host."""
    if reader.flag("fused_activation") is False:
        reader.say("framework.kernels.fused.activation", False, "fused_activation")
        reader.assume("framework", "neutral", "calculon names no software")
    for key, where in {"weight_offload": "parameters", "optimizer_offload": "optimizer"}.items():
        if reader.flag(key):
            reader.say(f"sharding.offload.{where}", "cpu", key)
    if reader.flag("activations_offload"):
        reader.say("training.activation_offload", "cpu", "activations_offload")


def _degrees(reader: Reader) -> dict[str, int | None]:
    """Say the degrees, which multiply out to all GPUs."""
    world, degrees = reader.whole("num_procs"), {axis: reader.whole(key) for key, axis in DEGREES.items()}
    product = prod(degree or 1 for degree in degrees.values())
    if world and None not in degrees.values() and world != product:
        raise reader.fail("num_procs", f"{world} is not {' x '.join(DEGREES)} = {product}")
    reader.say("cluster.gpus", world, "num_procs")
    for key, axis in DEGREES.items():
        reader.say(f"parallel.{axis}", degrees[axis], key)
    return degrees


def _tensor_parallel(reader: Reader, tp: int, recompute: str) -> None:
    """How ranks of a tensor-parallel group talk."""
    kind = reader.word("tensor_par_comm_type", table("calculon")["communication"])
    overlap = reader.word("tensor_par_overlap", ("none", "ring", "pipe"))
    again = reader.flag("seq_par_ag_redo")
    if tp == 1:
        return
    if kind:
        value = table("calculon")["communication"][kind]["sequence_parallel"]
        reader.say("parallel.sequence_parallel", value, "tensor_par_comm_type")
    if kind == "p2p_rs_ag":
        words = "messages of the pipeline are cut over tp, and gathered again: not modelled"
        reader.warn("tensor_par_comm_type", words)
    if overlap == "none":
        reader.say("training.tp_overlap", "none", "tensor_par_overlap")
    elif overlap:
        reader.warn(
            "tensor_par_overlap", f"{overlap}: the framework's way of overlapping is taken; --set training.tp_overlap"
        )
    if again is False and kind == "rs_ag" and recompute != "full":
        reader.warn("seq_par_ag_redo", "what was gathered is gathered again in the backward pass here, not kept")


def _model(reader: Reader) -> None:
    """Sizes; calculon's model is GPT-3's, and knows no vocabulary."""
    reader.say("model.family", "gpt")
    for key, name in {"num_blocks": "layers", "hidden": "hidden", "attn_heads": "heads", "attn_size": "head_dim",
                      "feedforward": "ffn_hidden"}.items():  # fmt: skip
        reader.say(f"model.{name}", reader.whole(key), key)
    reader.say("training.sequence_length", reader.whole("seq_size"), "seq_size")
    reader.assume("model.vocab", table("calculon")["vocabulary"], "what calculon counts parameters with")


def _system(reader: Reader) -> None:
    """The GPU by its datasheet, and the bandwidths of the machine."""
    tflops = reader.number("matrix.tflops") or reader.number("matrix.float16.tflops")
    memory = reader.number("mem1.GiB")
    gpu = gpu_of(tflops, memory) if tflops and memory else None
    sources = [key for key in ("matrix.tflops", "matrix.float16.tflops", "mem1.GiB") if reader.has(key)]
    if gpu:
        reader.say("cluster.gpu", gpu, *sources)
    elif sources:
        words = f"no GPU of the catalogue has {tflops or 0:g} TFLOP/s and {memory or 0:g} GiB: --set cluster.gpu=NAME"
        reader.warn(sources[0], words)
    if bandwidth := reader.number("mem1.GBps"):
        reader.warn("mem1.GBps", f"not modelled: {bandwidth:g} GB/s; the catalogue's measured bandwidth is taken")
    for section in ("matrix.gflops_efficiency", "vector", "mem1.MB_efficiency", "mem2"):
        if reader.mapping(section.partition(".")[0]) and reader.has(section):
            reader.warn(
                section, "not modelled: efficiencies of calculon; kernels here follow measurements of their own"
            )
    if networks := reader.listing("networks"):
        words = "networks with sizes, bandwidths and efficiencies: a topology says that here (cluster.topology)"
        reader.warn("networks", f"not modelled: {len(networks)} {words}")


KEYS = (
    read("num_procs", "cluster.gpus"),
    read("tensor_par", "parallel.tp"),
    read("pipeline_par", "parallel.pp"),
    read("data_par", "parallel.dp"),
    read("batch_size", "training.global_batch"),
    read("microbatch_size", "training.micro_batch"),
    read("datatype", "training.precision"),
    read("activation_recompute", "training.recompute"),
    read("pipeline_interleaving", "pipeline.chunks"),
    read("optimizer_sharding", "sharding.strategy: zero1 or ddp"),
    read("data_par_overlap", "sharding.overlap"),
    read("attention_type", "model.kv_heads: 1 for multiquery"),
    read("tensor_par_comm_type", "parallel.sequence_parallel"),
    read("tensor_par_overlap", "training.tp_overlap: none; others are reported"),
    read("seq_par_ag_redo", "reported, where it is false beside rs_ag"),
    read("weight_offload", "sharding.offload.parameters"),
    read("optimizer_offload", "sharding.offload.optimizer"),
    read("activations_offload", "training.activation_offload"),
    read("training", "false is refused"),
    read("hidden", "model.hidden"),
    read("feedforward", "model.ffn_hidden"),
    read("seq_size", "training.sequence_length"),
    read("attn_heads", "model.heads"),
    read("attn_size", "model.head_dim"),
    read("num_blocks", "model.layers"),
    read("matrix.tflops", "cluster.gpu, with the memory"),
    read("matrix.float16.tflops", "cluster.gpu, with the memory"),
    read("mem1.GiB", "cluster.gpu"),
    read("mem1.GBps", "reported: measured bandwidths are taken"),
    read("networks", "reported: a topology says that"),
    read("fused_activation", "framework.kernels.fused.activation, where it is false"),
    *not_modelled("reductions by the switches: a topology says nvls", "in_network_reduction", harmless=(False,)),
    *no_effect("which network a group uses follows from where its ranks lie", "tensor_par_net", "pipeline_par_net",
               "data_par_net"),
    *not_modelled("efficiencies of calculon: kernels here follow measurements of their own", "matrix.**", "vector.**",
                  "mem1.MB_efficiency", "mem2.**"),
    *not_modelled("how a kernel's compute and memory time add up", "processing_mode"),
)  # fmt: skip

register(
    Importer(
        name="calculon",
        title="calculon's JSON",
        about="calculon's executions, models and systems, a JSON file each; give those of one run together.",
        leaves_open="An execution: model and machine. A model: all else. A system: the topology. None: the framework.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "A file that names degrees is an execution only; the model and the system are further files.",
            "Efficiencies of a system are reported and ignored: measured values are used here instead.",
        ),
    )
)
