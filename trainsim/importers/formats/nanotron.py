"""
nanotron's YAML: tokens, parallelism, a model's class and its sizes.
"""

from __future__ import annotations

from math import prod

from trainsim.errors import shorten
from trainsim.importers.findings import Findings
from trainsim.importers.importer import Importer, no_effect, not_modelled, read, register
from trainsim.importers.interpolation import interpolated
from trainsim.importers.reader import Reader
from trainsim.importers.source import Source

MODEL = "model.model_config"
SIZES = {"num_hidden_layers": "layers", "hidden_size": "hidden", "num_attention_heads": "heads",
         "num_key_value_heads": "kv_heads", "intermediate_size": "ffn_hidden", "vocab_size": "vocab",
         "max_position_embeddings": "max_positions"}  # fmt: skip
DEGREES = {"tp": "tp", "pp": "pp", "dp": "dp", "context_parallel_size": "cp", "expert_parallel_size": "ep",
           "expert_tensor_parallel_size": "etp"}  # fmt: skip
CLASSES = {"is_llama_config": "llama", "is_qwen2_config": "qwen2"}
PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
ATTENTION = {
    "flash_attention_2": "flash2",
    "sdpa": "sdpa",
    "ring_flash_triton": "flash2",
    "llama3_ring_attention": "flash2",
}
WHOSE = "nanotron's default"
MEBIBYTE = 1 << 20


def sniff(source: Source) -> float:
    """Sure of its sections."""
    sections = source.has("parallelism", "tokens", "optimizer", "general", "model")
    own = "batch_accumulation_per_replica" in source.section("tokens") or "tp_mode" in source.section("parallelism")
    return 0.95 if own and sections > 2 else 0.6 if "model_config" in source.section("model") else 0.0


def load(source: Source) -> Findings:
    """The model, the degrees, the batches and how gradients are summed."""
    reader = Reader(interpolated(source.document).document, KEYS)
    reader.assume("framework", "nanotron", "the file is one of nanotron")
    _model(reader)
    pp = _degrees(reader)
    _pipeline(reader, pp)
    _tokens(reader)
    _numbers(reader)
    _optimizer(reader)
    return reader.findings("nanotron")


def _model(reader: Reader) -> None:
    """Say the model: its class, its sizes and what differs."""
    if reader.mapping(MODEL) is None:
        return
    if reader.flag(f"{MODEL}.is_starcoder2_config"):
        words = "Starcoder2 is not modelled, so the model is left open: add its config.json"
        reader.warn(MODEL, words)
        return
    flags = [key for key in CLASSES if reader.flag(f"{MODEL}.{key}")]
    if flags:
        reader.say("model.family", CLASSES[flags[0]], f"{MODEL}.{flags[0]}")
    else:
        reader.assume("model.family", "llama", f"{WHOSE}: a model without a flag is a Llama")
    for key, to in SIZES.items():
        reader.say(f"model.{to}", reader.whole(f"{MODEL}.{key}"), f"{MODEL}.{key}")
    if not reader.has(f"{MODEL}.num_key_value_heads") and (heads := reader.whole(f"{MODEL}.num_attention_heads")):
        reader.assume("model.kv_heads", heads, f"{WHOSE}: as many as heads")
    if (tied := reader.flag(f"{MODEL}.tie_word_embeddings")) is not None:
        reader.say("model.tied_embeddings", tied, f"{MODEL}.tie_word_embeddings")
    biased = reader.flag(f"{MODEL}.attention_bias")
    if biased is not None:
        reader.say("model.biases", "attention" if biased else "none", f"{MODEL}.attention_bias")
    else:
        reader.assume("model.biases", "none", WHOSE)
    window = reader.whole(f"{MODEL}.sliding_window_size")
    reader.say("model.window", window, f"{MODEL}.sliding_window_size")
    _experts(reader)
    _kernels(reader)
    multiple = reader.whole("model.make_vocab_size_divisible_by")
    if multiple and multiple > 1:
        reader.say("framework.kernels.vocab_multiple", multiple, "model.make_vocab_size_divisible_by")


def _experts(reader: Reader) -> None:
    """The mixture of experts, each as wide as the MLP unless a width is given."""
    section = f"{MODEL}.moe_config"
    if reader.mapping(section) is None:
        return
    reader.say("model.moe.experts", reader.whole(f"{section}.num_experts"), f"{section}.num_experts")
    reader.say("model.moe.top_k", reader.whole(f"{section}.top_k"), f"{section}.top_k")
    key = next((f"{section}.{name}" for name in ("moe_intermediate_size", "moe_hidden_size")
                if reader.has(f"{section}.{name}")), f"{MODEL}.intermediate_size")  # fmt: skip
    reader.say("model.moe.expert_ffn_hidden", reader.whole(key), key)
    if reader.flag(f"{section}.enable_shared_expert"):
        width = f"{section}.shared_expert_intermediate_size"
        if reader.has(width):
            reader.say("model.moe.shared_ffn_hidden", reader.whole(width), width, f"{section}.enable_shared_expert")
        else:
            reader.say("model.moe.shared_experts", 1, f"{section}.enable_shared_expert")
    dispatcher = reader.word(f"{section}.token_dispatcher_type", ("alltoall", "allgather"))
    reader.say("training.moe.dispatcher", dispatcher, f"{section}.token_dispatcher_type")
    layers = reader.listing(f"{section}.layers")
    if layers not in (None, [-1]):
        words = "which layers have experts: here all have, or --set model.moe.every=N"
        reader.warn(f"{section}.layers", f"{shorten(layers)}: {words}")


def _kernels(reader: Reader) -> None:
    """What is one kernel, and which one attention is."""
    for key, fused in {"_fused_rms_norm": "norm", "_fused_rotary_emb": "rotary"}.items():
        if (on := reader.flag(f"{MODEL}.{key}")) is not None:
            reader.say(f"framework.kernels.fused.{fused}", on, f"{MODEL}.{key}")
    name = reader.text(f"{MODEL}._attn_implementation")
    if name in ATTENTION:
        reader.say("training.attention", ATTENTION[name], f"{MODEL}._attn_implementation")
    elif name:
        words = "is not modelled; the framework's attention is taken"
        reader.warn(f"{MODEL}._attn_implementation", f"{name} {words}")
    if reader.flag(f"{MODEL}._use_doc_masking"):
        words = "attention stays in documents; how long they are is in no key: --set training.documents=N"
        reader.warn(f"{MODEL}._use_doc_masking", words)


def _degrees(reader: Reader) -> int:
    """Say the degrees; the stages of the pipeline."""
    found: dict[str, int | None] = {axis: reader.whole(f"parallelism.{key}") for key, axis in DEGREES.items()}
    for key, axis in DEGREES.items():
        reader.say(f"parallel.{axis}", found[axis], f"parallelism.{key}")
    if found["dp"]:
        world = prod(found[axis] or 1 for axis in ("tp", "pp", "dp", "cp"))
        reader.assume("cluster.gpus", world, "the product of the file's degrees")
    return found["pp"] or 1


def _pipeline(reader: Reader, pp: int) -> None:
    """The order of passes, what tensor parallelism sends, and what is recomputed."""
    engine = reader.word("parallelism.pp_engine", ("1f1b", "afab"))
    if pp > 1 and engine:
        reader.say("pipeline.schedule", {"1f1b": "1f1b", "afab": "gpipe"}[engine], "parallelism.pp_engine")
    elif pp > 1:
        reader.assume("pipeline.schedule", "gpipe", f"{WHOSE}: all forward, all backward")
    mode = reader.word("parallelism.tp_mode", ("ALL_REDUCE", "REDUCE_SCATTER"))
    wide = reader.whole("parallelism.tp") != 1
    if mode and wide:
        reader.say("parallel.sequence_parallel", mode == "REDUCE_SCATTER", "parallelism.tp_mode")
    overlap = reader.flag("parallelism.tp_linear_async_communication")
    if overlap is not None and wide:
        reader.say("training.tp_overlap", "wgrad" if overlap else "none", "parallelism.tp_linear_async_communication")
    if wide and reader.flag("parallelism.tp_recompute_allgather") is False:
        words = "not modelled: gathered inputs are kept; here they are gathered again in the backward pass"
        reader.warn("parallelism.tp_recompute_allgather", words)
    layers, experts = reader.flag("parallelism.recompute_layer"), reader.flag("parallelism.moe_layer_recompute")
    if experts and not layers:
        recompute = {"mode": "selective", "modules": ["moe"]}
        reader.say("training.recompute", recompute, "parallelism.moe_layer_recompute")
    elif layers is not None:
        reader.say("training.recompute", "full" if layers else "none", "parallelism.recompute_layer")


def _tokens(reader: Reader) -> None:
    """Sequences of a micro-batch and of a step."""
    for key, to in {"sequence_length": "sequence_length", "micro_batch_size": "micro_batch",
                    "batch_accumulation_per_replica": "gradient_accumulation"}.items():  # fmt: skip
        reader.say(f"training.{to}", reader.whole(f"tokens.{key}"), f"tokens.{key}")


def _numbers(reader: Reader) -> None:
    """Types of numbers, and of the sums of gradients."""
    if dtype := reader.word("model.dtype", PRECISIONS):
        reader.say("training.precision", PRECISIONS[dtype], "model.dtype")
    summed = reader.flag("optimizer.accumulate_grad_in_fp32")
    if summed is not None and dtype != "float32":
        low = PRECISIONS[dtype or "bfloat16"]
        reader.say("training.accumulation_dtype", "fp32" if summed else low, "optimizer.accumulate_grad_in_fp32")


def _optimizer(reader: Reader) -> None:
    """Who shares its states, and what it is."""
    stage = reader.whole("optimizer.zero_stage", low=0)
    if stage is not None:
        if stage > 1:
            raise reader.fail("optimizer.zero_stage", f"nanotron has no ZeRO-{stage}; 0 and 1 are")
        reader.say("sharding.strategy", "zero1" if stage else "ddp", "optimizer.zero_stage")
    size = reader.number("model.ddp_bucket_cap_mb", low=0.001)
    if size and stage == 0:
        four = reader.flag("optimizer.accumulate_grad_in_fp32") is not False
        elements = int(size * MEBIBYTE) // (4 if four else 2)
        reader.say("sharding.reduce_bucket", elements, "model.ddp_bucket_cap_mb")
    name = reader.word("optimizer.optimizer_factory.name", ("adamW", "sgd"))
    if name:
        reader.say("training.optimizer", {"adamW": "adamw", "sgd": "sgd"}[name], "optimizer.optimizer_factory.name")


KEYS = (
    *(read(f"{MODEL}.{key}", f"model.{to}") for key, to in SIZES.items()),
    *(read(f"{MODEL}.{key}", f"model.family: {to}") for key, to in CLASSES.items()),
    read(f"{MODEL}.is_starcoder2_config", "reported: the model is left open"),
    read(f"{MODEL}.tie_word_embeddings", "model.tied_embeddings"),
    read(f"{MODEL}.attention_bias", "model.biases"),
    read(f"{MODEL}.sliding_window_size", "model.window"),
    read(f"{MODEL}._fused_rms_norm", "framework.kernels.fused.norm"),
    read(f"{MODEL}._fused_rotary_emb", "framework.kernels.fused.rotary"),
    read(f"{MODEL}._attn_implementation", "training.attention"),
    read(f"{MODEL}._use_doc_masking", "reported: lengths of documents are in no key"),
    read(f"{MODEL}.moe_config.num_experts", "model.moe.experts"),
    read(f"{MODEL}.moe_config.top_k", "model.moe.top_k"),
    read(f"{MODEL}.moe_config.moe_intermediate_size", "model.moe.expert_ffn_hidden"),
    read(f"{MODEL}.moe_config.moe_hidden_size", "model.moe.expert_ffn_hidden"),
    read(f"{MODEL}.moe_config.enable_shared_expert", "model.moe.shared_experts"),
    read(f"{MODEL}.moe_config.shared_expert_intermediate_size", "model.moe.shared_ffn_hidden"),
    read(f"{MODEL}.moe_config.token_dispatcher_type", "training.moe.dispatcher"),
    read(f"{MODEL}.moe_config.layers", "reported, unless it is all"),
    read("model.make_vocab_size_divisible_by", "framework.kernels.vocab_multiple"),
    read("model.dtype", "training.precision"),
    read("model.ddp_bucket_cap_mb", "sharding.reduce_bucket, with ZeRO off"),
    *(read(f"parallelism.{key}", f"parallel.{to}") for key, to in DEGREES.items()),
    read("parallelism.pp_engine", "pipeline.schedule: 1f1b or gpipe"),
    read("parallelism.tp_mode", "parallel.sequence_parallel"),
    read("parallelism.tp_linear_async_communication", "training.tp_overlap"),
    read("parallelism.tp_recompute_allgather", "reported, where it is false"),
    read("parallelism.recompute_layer", "training.recompute"),
    read("parallelism.moe_layer_recompute", "training.recompute"),
    read("tokens.sequence_length", "training.sequence_length"),
    read("tokens.micro_batch_size", "training.micro_batch"),
    read("tokens.batch_accumulation_per_replica", "training.gradient_accumulation"),
    read("optimizer.accumulate_grad_in_fp32", "training.accumulation_dtype"),
    read("optimizer.zero_stage", "sharding.strategy: ddp or zero1"),
    read("optimizer.optimizer_factory.name", "training.optimizer"),
    *not_modelled("another activation than SwiGLU", f"{MODEL}.hidden_act", harmless=("silu",)),
    *not_modelled("layers without rotary positions", f"{MODEL}.no_rope_layer"),
    *not_modelled("masks of FlexAttention", f"{MODEL}.flex_attention_mask"),
    *not_modelled("a further sum over the logits", f"{MODEL}.z_loss_enabled", harmless=(False,)),
    *not_modelled("an update of several kernels", "optimizer.optimizer_factory.torch_adam_is_fused", harmless=(True,)),
    *not_modelled("parts of a mixture of experts", f"{MODEL}.moe_config.**"),
    *no_effect("queries, keys and values of one product are what is modelled", f"{MODEL}._use_qkv_packed"),
    *no_effect("values of weights, angles, tokens with a meaning", f"{MODEL}.initializer_range", f"{MODEL}.*_token_id",
               f"{MODEL}.rope_*", f"{MODEL}.rms_norm_eps", f"{MODEL}.layer_norm_epsilon", f"{MODEL}.pretraining_tp",
               f"{MODEL}.use_cache", f"{MODEL}.z_loss_coefficient", "model.init_method.**",
               f"{MODEL}.rope_scaling.**"),
    *no_effect("follows from the other degrees, and from the model", "parallelism.expert_data_parallel_size",
               "parallelism.enabled_moe"),
    *no_effect("data, and how many steps there are", "data_stages", "tokens.train_steps", "tokenizer.**", "general.**"),
    *no_effect("checkpoints and evaluation, between steps", "checkpoints.**", "tokens.limit_*", "tokens.val_*",
               "lighteval.**", "s3_upload.**"),
    *no_effect("logging and profiling", "logging.**", "metrics_logging.**", "profiler.**"),
    *no_effect("numbers of the optimizer, not its work", "optimizer.learning_rate_scheduler.**",
               "optimizer.optimizer_factory.**", "optimizer.weight_decay*"),
    *no_effect("the norm of gradients is taken in every step", "optimizer.clip_grad"),
)  # fmt: skip

register(
    Importer(
        name="nanotron",
        title="nanotron's YAML",
        about="nanotron's training files: a model's class and sizes, degrees, tokens, the optimizer.",
        leaves_open="The machine; the number of GPUs is the product of the degrees.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "`pp_engine` left out is all-forward-all-backward, which is gpipe.",
            "A key that stands twice (`moe_config`) counts as its last place says, and is reported.",
        ),
    )
)
