"""
SimuMax's JSON: a model, a strategy and a system are a file each.
"""

from __future__ import annotations

from typing import Any

from trainsim.importers.findings import Findings
from trainsim.importers.importer import Importer, no_effect, not_modelled, read, register
from trainsim.importers.machines import gpu_of, unlike
from trainsim.importers.reader import Reader
from trainsim.importers.source import Source
from trainsim.importers.tables import table

STRATEGY = ("world_size", "tp_size", "pp_size", "micro_batch_num", "micro_batch_size", "seq_len")
MODEL = ("head_num", "kv_head_num", "layer_num", "hidden_size", "intermediate_size")
SYSTEM = ("sys_name", "num_per_node", "accelerator", "networks")
WHOSE = "SimuMax's default"
SIZES = {"layer_num": "layers", "hidden_size": "hidden", "head_num": "heads", "kv_head_num": "kv_heads",
         "head_size": "head_dim", "intermediate_size": "ffn_hidden", "vocab_size": "vocab"}  # fmt: skip
FUSED = {"use_fused_norm": "norm", "use_fused_swiglu": "activation"}
LATENT = {"q_lora_rank": "q_lora_rank", "kv_lora_rank": "kv_lora_rank", "qk_head_dim": "qk_nope_head_dim",
          "qk_pos_emb_head_dim": "qk_rope_head_dim", "v_head_dim": "v_head_dim"}  # fmt: skip


def sniff(source: Source) -> float:
    """Sure of the keys that only one of its kinds of files has together."""
    return max(source.has(*keys) / len(keys) for keys in (STRATEGY, MODEL, SYSTEM)) * 0.97


def load(source: Source) -> Findings:
    """A model, a strategy or a system."""
    reader = Reader(source.document, KEYS)
    if source.has("head_num", "layer_num"):
        _model(reader)
    if source.has("tp_size", "pp_size", "micro_batch_num", "world_size"):
        _strategy(reader)
    if source.has("accelerator", "num_per_node"):
        _system(reader)
    return reader.findings("simumax")


def _model(reader: Reader) -> None:
    """Sizes, as they are written: SimuMax pads layers where stages would be uneven."""
    name = reader.text("model_name")
    latent = reader.word("attention_type", ("mha", "mla")) == "mla"
    reader.say("model.family", "deepseek" if latent else "llama" if reader.flag("use_swiglu") else "gpt", "use_swiglu")
    values = {to: reader.whole(key) for key, to in SIZES.items()}
    for key, to in SIZES.items():
        reader.say(f"model.{to}", values[to], key)
    if reader.flag("use_swiglu") is not None:
        reader.say("model.gated_mlp", reader.flag("use_swiglu"), "use_swiglu")
    reader.assume("model.tied_embeddings", False, "SimuMax counts embedding and head apart")
    if latent:
        for key, to in LATENT.items():
            reader.say(f"model.mla.{to}", reader.whole(key), key)
    if (experts := reader.whole("expert_num")) and experts > 1:
        _experts(reader, experts)
    if name:
        reader.say("model.name", name, "model_name")
        if difference := unlike(name, values):
            reader.warn("model_name", f"sizes are taken as they are written; {difference}")


def _experts(reader: Reader, experts: int) -> None:
    """The mixture of experts in the place of the MLP."""
    reader.say("model.moe.experts", experts, "expert_num")
    reader.say("model.moe.top_k", reader.whole("topk"), "topk")
    reader.say("model.moe.expert_ffn_hidden", reader.whole("moe_ffn_hidden_size"), "moe_ffn_hidden_size")
    if shared := reader.whole("moe_shared_expert_intermediate_size", low=0):
        reader.say("model.moe.shared_ffn_hidden", shared, "moe_shared_expert_intermediate_size")
    reader.say("model.moe.first_dense", reader.whole("dense_layers", low=0), "dense_layers")


def _strategy(reader: Reader) -> None:
    """Degrees, batches, types, and what is recomputed."""
    words = table("simumax")
    degrees = {axis: reader.whole(f"{axis}_size") for axis in ("tp", "pp", "ep", "etp")}
    for axis, degree in degrees.items():
        reader.say(f"parallel.{axis}", degree if axis != "etp" or degrees["ep"] != 1 else None, f"{axis}_size")
    reader.say("parallel.cp", reader.whole("cp_size"), "cp_size")
    reader.say("cluster.gpus", reader.whole("world_size"), "world_size")
    reader.say("training.sequence_length", reader.whole("seq_len"), "seq_len")
    reader.say("training.micro_batch", reader.whole("micro_batch_size"), "micro_batch_size")
    reader.say("training.gradient_accumulation", reader.whole("micro_batch_num"), "micro_batch_num")
    dtype, eight = reader.word("dtype", words["dtypes"]), reader.flag("fp8")
    if dtype or eight:
        sources = [key for key in ("fp8", "dtype") if reader.has(key)]
        reader.say("training.precision", "fp8" if eight else words["dtypes"][dtype or "bf16"], *sources)
    reader.say("parallel.sequence_parallel", _flag(reader, "enable_sequence_parallel", degrees["tp"]),
               "enable_sequence_parallel")  # fmt: skip
    stage = reader.whole("zero_state", low=0)
    if stage is not None:
        if stage > 3:
            raise reader.fail("zero_state", f"{stage} is not a ZeRO stage; 0 to 3 are")
        reader.say("sharding.strategy", "ddp" if stage == 0 else f"zero{stage}", "zero_state")
    if reader.flag("enable_dropout") is not None:
        reader.say("model.dropout", reader.flag("enable_dropout"), "enable_dropout")
    if reader.flag("grad_reduce_in_bf16"):
        reader.say("training.gradient_dtype", "bf16", "grad_reduce_in_bf16")
    if (summed := reader.flag("use_fp32_accum_grad")) is not None:
        reader.say("training.accumulation_dtype", "fp32" if summed else "bf16", "use_fp32_accum_grad")
    for key, part in FUSED.items():
        if reader.flag(key) is False:
            reader.say(f"framework.kernels.fused.{part}", False, key)
            reader.assume("framework", "neutral", "SimuMax names no software")
    _pipeline(reader, degrees["pp"] or 1)
    _attention(reader)
    _recompute(reader)


def _flag(reader: Reader, key: str, tp: int | None) -> bool | None:
    """A flag that means something above one tensor-parallel rank only."""
    value: bool | None = reader.flag(key)
    return value if tp != 1 else None


def _pipeline(reader: Reader, pp: int) -> None:
    """Chunks and schedule."""
    chunks, names = reader.whole("interleaving_size"), table("simumax")["schedules"]
    name = reader.word("pp_schedule", names)
    if pp == 1:
        return
    reader.say("pipeline.chunks", chunks, "interleaving_size")
    plain = name == "1f1b" and (chunks or 1) > 1
    reader.say("pipeline.schedule", names[name] if name and not plain else None, "pp_schedule")
    if plain:
        reader.use("pp_schedule", "interleaved, for there are chunks")
    if (waiting := reader.flag("pp_comm_async")) is not None:
        reader.say("pipeline.p2p", "async" if waiting else "blocking", "pp_comm_async")


def _attention(reader: Reader) -> None:
    """The kernel of attention."""
    flash, plain = reader.flag("use_flash_sdp"), reader.flag("use_math_sdp")
    if flash:
        reader.use("use_flash_sdp", "training.attention: the framework's fused kernel")
    elif plain or flash is False:
        key = "use_math_sdp" if plain else "use_flash_sdp"
        reader.say("training.attention", "eager", key)


def _recompute(reader: Reader) -> None:
    """What is recomputed, and in how many layers of a rank."""
    known = ("full_block", "attn_only", "mlp_only", "sdp_only", "selective_recompute")
    modules = table("simumax")["recompute_modules"]
    chosen = [key for key in modules if reader.flag(key)]
    on, what = reader.flag("enable_recompute"), reader.word("recompute_granularity", known)
    layers = reader.whole("recompute_layer_num", low=0)
    if on is False or layers == 0 or what is None:
        sources = [key for key in ("enable_recompute", "recompute_layer_num") if reader.has(key)]
        reader.say("training.recompute", "none" if sources else None, *sources)
        return
    if what == "full_block":
        recompute: dict[str, Any] = {"mode": "full", **({"layers": layers} if layers else {})}
        if layers:
            reader.use("recompute_layer_num", f"training.recompute.layers = {layers}")
        reader.say("training.recompute", recompute, "recompute_granularity")
        return
    named = [modules[key] for key in chosen] if what == "selective_recompute" else []
    named = named or ["mlp" if what == "mlp_only" else "core_attn"]
    chosen_modules = {"mode": "selective", "modules": list(dict.fromkeys(named))}
    reader.say("training.recompute", chosen_modules, "recompute_granularity", *chosen)
    words = "the nearest modules; SimuMax also runs projections again, and in the first layers of a rank alone"
    reader.warn(
        "recompute_granularity", f"training.recompute.modules = {', '.join(chosen_modules['modules'])}: {words}"
    )


def _system(reader: Reader) -> None:
    """The GPU by its datasheet; a topology has the links."""
    tflops, memory = reader.number("accelerator.op.default.tflops"), reader.number("accelerator.mem_gbs")
    gpu = gpu_of(tflops, memory) if tflops and memory else None
    if gpu:
        reader.say("cluster.gpu", gpu, "accelerator.op.default.tflops", "accelerator.mem_gbs")
    elif reader.has("accelerator.mem_gbs"):
        words = f"no GPU of the catalogue has {tflops or 0:g} TFLOP/s and {memory or 0:g} GB: --set cluster.gpu=NAME"
        reader.warn("accelerator.mem_gbs", words)
    if number := reader.whole("num_per_node"):
        reader.warn(
            "num_per_node", f"not modelled: {number} GPUs in a node, which the topology says (cluster.topology)"
        )


KEYS = (
    *(read(key, f"model.{to}") for key, to in SIZES.items()),
    *(read(key, f"model.mla.{to}, where attention_type is mla") for key, to in LATENT.items()),
    read("model_name", "model.name; reported, where sizes are not those of the catalogue's model of that name"),
    read("attention_type", "model.mla"),
    read("use_swiglu", "model.family, model.gated_mlp"),
    read("expert_num", "model.moe.experts"),
    read("topk", "model.moe.top_k"),
    read("moe_ffn_hidden_size", "model.moe.expert_ffn_hidden"),
    read("moe_shared_expert_intermediate_size", "model.moe.shared_ffn_hidden"),
    read("dense_layers", "model.moe.first_dense"),
    *(read(f"{axis}_size", f"parallel.{axis}") for axis in ("tp", "pp", "ep", "etp", "cp")),
    read("world_size", "cluster.gpus"),
    read("seq_len", "training.sequence_length"),
    read("micro_batch_size", "training.micro_batch"),
    read("micro_batch_num", "training.gradient_accumulation"),
    read("dtype", "training.precision"),
    read("fp8", "training.precision"),
    read("enable_sequence_parallel", "parallel.sequence_parallel"),
    read("zero_state", "sharding.strategy"),
    read("enable_dropout", "model.dropout"),
    read("grad_reduce_in_bf16", "training.gradient_dtype"),
    read("use_fp32_accum_grad", "training.accumulation_dtype"),
    read("interleaving_size", "pipeline.chunks"),
    read("pp_schedule", "pipeline.schedule"),
    read("pp_comm_async", "pipeline.p2p"),
    read("use_flash_sdp", "training.attention"),
    read("use_math_sdp", "training.attention"),
    read("enable_recompute", "training.recompute"),
    read("recompute_granularity", "training.recompute"),
    read("recompute_layer_num", "training.recompute.layers"),
    *(read(key, f"training.recompute.modules: {to}") for key, to in table("simumax")["recompute_modules"].items()),
    read("accelerator.op.default.tflops", "cluster.gpu, with the memory"),
    read("accelerator.mem_gbs", "cluster.gpu"),
    read("num_per_node", "reported: the topology says that"),
    *no_effect("dense or with experts: the sizes say that", "model_type"),
    *no_effect("which network a group uses follows from where its ranks lie", "*_net"),
    *no_effect("a name", "sys_name", "_notes", "accelerator.backend"),
    *(read(key, f"framework.kernels.fused.{part}, where it is false") for key, part in FUSED.items()),
    *not_modelled("sums of gradients in a kernel of their own", "use_fused_grad_accumulation", "use_accm_weight",
                  harmless=(True,)),
    *not_modelled("how tokens get to experts other than by all-to-all", "moe_dispatcher_policy", harmless=("all2all",)),
    *not_modelled("experts take so many tokens, filled up: --set training.moe.capacity_factor", "capacity",
                  "moe_pad_expert_input_to_capacity", harmless=(1, 1.0, False)),
    *not_modelled("products of experts one after the other", "group_linear_mode", harmless=("parallel",)),
    *not_modelled("stages of other lengths: --set pipeline.layout", "num_layers_in_first_pipeline_stage",
                  "num_layers_in_last_pipeline_stage", "account_for_embedding_in_pipeline_split",
                  "account_for_loss_in_pipeline_split", harmless=(False, 0)),
    *not_modelled("inputs of experts in 8 bits, or on the host", "cache_groupgemm_col_fp8_inputs",
                  "offload_groupgemm_col_inputs", harmless=(False,)),
    *not_modelled("the last module of a layer is not run again", "recompute_variance", harmless=(False,)),
    *not_modelled("a share of attention's scores that is not computed", "attention_sparse_ratio",
                  harmless=(0, 0.0, 0.5)),
    *not_modelled("probabilities that travel with the tokens", "dispatch_probs", harmless=(False, True)),
    *not_modelled("which share of memory may be used: cluster.reserved_memory keeps the rest free", "mem_factor"),
    *not_modelled("efficiencies of SimuMax: kernels here follow measurements of their own", "accelerator.**"),
    *not_modelled("efficiencies of SimuMax: a topology has the links", "networks.**", "FC8", "intra_with_pcie"),
    *no_effect("the vocabulary before padding", "orig_vocab_size", "padded_vocab_size", "make_vocab_size_divisible_by"),
)  # fmt: skip

register(
    Importer(
        name="simumax",
        title="SimuMax's JSON",
        about="SimuMax's models, strategies and systems, a JSON file each; give those of one run together.",
        leaves_open="A model: all else. A strategy: the model. A system: the topology.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "Sizes are taken as they are written. SimuMax pads layers (126 to 128): where a model is called like one "
            "of the catalogue and differs from it, that is reported.",
            "Efficiencies of a system are reported and ignored: measured values are used here instead.",
        ),
    )
)
