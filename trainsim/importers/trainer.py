"""
The arguments of Hugging Face's Trainer (transformers.TrainingArguments), which many tools pass on under the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainsim.documents.document import Document
from trainsim.importers.formats.deepspeed import read_document
from trainsim.importers.fsdp import Wrapping, fsdp_keys, read_fsdp
from trainsim.importers.importer import Key, no_effect, not_modelled, read
from trainsim.importers.optimizers import say_optimizer
from trainsim.importers.reader import Reader

ATTENTION = {
    "eager": "eager", "sdpa": "sdpa", "flash_attention_2": "flash2", "flash_attention_3": "flash3", "fa2": "flash2",
    "fa3": "flash3", "disabled": "eager", "flash2": "flash2", "flash3": "flash3",
    "kernels-community/flash-attn": "flash2", "kernels-community/flash-attn2": "flash2",
    "kernels-community/flash-attn3": "flash3", "kernels-community/vllm-flash-attn3": "flash3",
}  # fmt: skip
LIGER = {"norm": "RMSNorm", "rotary": "rotary positions", "activation": "SwiGLU"}
"""Operations that Liger's kernels fuse, and what they are."""

TRAINER_KEYS: tuple[Key, ...] = (
    read("per_device_train_batch_size", "training.micro_batch"),
    read("per_gpu_train_batch_size", "training.micro_batch (old)"),
    read("gradient_accumulation_steps", "training.gradient_accumulation"),
    read("bf16", "training.precision"),
    read("fp16", "training.precision"),
    read("tf32", "training.precision: tf32, where neither bf16 nor fp16 is on"),
    read("optim", "training.optimizer"),
    read("adafactor", "training.optimizer: adafactor (old)"),
    read("gradient_checkpointing", "training.recompute: full"),
    read("deepspeed", "the file is read too, or the mapping in its place"),
    read("fsdp", "sharding.strategy, sharding.units and sharding.offload"),
    read("fsdp_config", "the file is read too, or the mapping in its place"),
    *fsdp_keys("fsdp_config"),
    read("fsdp_transformer_layer_cls_to_wrap", "sharding.units: layers (old)"),
    read("torch_compile", "framework.compiled"),
    read("torch_compile_backend", "framework.compiled: inductor"),
    read("use_liger_kernel", "training.cross_entropy: fused_linear, framework.kernels.fused"),
    read("use_cpu", "true is refused"),
    read("no_cuda", "true is refused"),
    *not_modelled("units by their size", "fsdp_min_num_params", harmless=(0,)),
    *not_modelled("automatic search for a batch size", "auto_find_batch_size", harmless=(False,)),
    *not_modelled("which of Liger's kernels are on", "liger_kernel_config.**"),
    *not_modelled("low-rank gradients (GaLore, APOLLO)", "optim_target_modules"),
    *not_modelled("caches that are emptied between steps", "torch_empty_cache_steps"),
    *not_modelled("how the model is compiled", "torch_compile_mode"),
    *not_modelled("buckets of another size, in MB", "ddp_bucket_cap_mb"),
    *not_modelled("noise or label smoothing, which cost a pass over the logits or embeddings", "label_smoothing_factor",
                  "neftune_noise_alpha", harmless=(0, 0.0)),
    *not_modelled("a process group other than PyTorch's default", "ddp_backend", harmless=("nccl",)),
    *not_modelled("degrees set by another object", "parallelism_config.**", harmless=(1,)),
    *no_effect("what is learnt, not how long it takes", "learning_rate", "weight_decay", "adam_*", "max_grad_norm",
               "num_train_epochs", "max_steps", "lr_scheduler_*", "warmup_*", "seed", "data_seed", "optim_args",
               "full_determinism", "embedding_learning_rate", "num_epochs"),
    *no_effect("what is logged, evaluated and saved", "output_dir", "overwrite_output_dir", "logging_*", "log_*",
               "save_*", "eval_*", "evaluation_strategy", "do_*", "load_best_model_at_end", "metric_for_best_model",
               "greater_is_better", "report_to", "run_name", "push_to_hub*", "hub_*", "resume_from_checkpoint",
               "per_device_eval_batch_size", "per_gpu_eval_batch_size", "prediction_loss_only", "trackio_*", "project",
               "include_*", "disable_tqdm", "plot_loss", "batch_eval_metrics", "jit_mode_eval", "skip_memory_metrics",
               "bf16_full_eval", "fp16_full_eval", "restore_callback_states_from_checkpoint", "label_names",
               "use_legacy_prediction_loop", "past_index", "debug", "wandb_*", "enable_jit_checkpoint"),
    *no_effect("how data is read", "dataloader_*", "group_by_length", "length_column_name", "train_sampling_strategy",
               "remove_unused_columns", "ignore_data_skip", "accelerator_config.**"),
    *no_effect("how processes are started", "local_rank", "ddp_timeout", "ddp_broadcast_buffers",
               "ddp_find_unused_parameters", "tpu_*", "use_mps_device", "use_ipex", "ray_scope", "mp_parameters",
               "average_tokens_across_devices"),
    *no_effect("how recomputation is done, not what", "gradient_checkpointing_kwargs.**"),
    *no_effect("torch's own", "half_precision_backend", "fp16_backend", "fp16_opt_level"),
)  # fmt: skip


def read_batches(reader: Reader, *, whose: str = "the Trainer", usual: int = 8) -> None:
    """Micro-batch and accumulation; *usual* is the batch where none is given."""
    names = ("per_device_train_batch_size", "per_gpu_train_batch_size")
    key = next((name for name in names if reader.has(name)), "")
    if key:
        reader.say("training.micro_batch", reader.whole(key, besides=("auto",)), key)
    else:
        reader.assume("training.micro_batch", usual, f"{whose}'s default of per_device_train_batch_size")
    if reader.has(steps := "gradient_accumulation_steps"):
        reader.say("training.gradient_accumulation", reader.whole(steps), steps)
    else:
        reader.assume("training.gradient_accumulation", 1, f"{whose}'s default of gradient_accumulation_steps")


def read_precision(reader: Reader, *, whose: str = "the Trainer") -> str:
    """The precision, by the three flags; the empty text where the default holds."""
    on = [name for name in ("bf16", "fp16") if reader.flag(name, besides=("auto",)) is True]
    if len(on) > 1:
        raise reader.fail("fp16", "bf16 is true as well; only one of them can be")
    if on:
        reader.say("training.precision", on[0], on[0])
        return on[0]
    if reader.flag("tf32"):
        reader.say("training.precision", "tf32", "tf32")
        return "tf32"
    reader.assume("training.precision", "fp32", f"{whose}'s default, where neither bf16 nor fp16 is on")
    return ""


def read_trainer(reader: Reader) -> None:
    """Say what is common to all tools: optimizer, recomputation, compiler, kernels, and who shares what."""
    for name in ("use_cpu", "no_cuda"):
        if reader.flag(name):
            raise reader.fail(name, "training on CPUs is not simulated")
    if reader.flag("adafactor"):
        reader.say("training.optimizer", "adafactor", "adafactor")
    elif reader.has("optim"):
        say_optimizer(reader, "optim")
    else:
        reader.assume("training.optimizer", "adamw", "the Trainer's default of optim is adamw_torch")
    if reader.flag("gradient_checkpointing"):
        reader.say("training.recompute", "full", "gradient_checkpointing")
    _compiled(reader)
    if reader.flag("use_liger_kernel"):
        say_liger(reader, "use_liger_kernel")
    say_sharding(reader)


def say_liger(reader: Reader, key: str) -> None:
    """Liger's kernels: pointwise chains of a layer are fused, and the head with its loss."""
    reader.say("training.cross_entropy", "fused_linear", key)
    for name in LIGER:
        reader.say(f"framework.kernels.fused.{name}", True, key)


def say_attention(reader: Reader, key: str) -> None:
    """The attention kernel that *key* names."""
    name = (reader.text(key) or "").casefold()
    if name in ATTENTION:
        reader.say("training.attention", ATTENTION[name], key)
    elif name:
        reader.warn(key, f"not modelled: {name} attention; the framework's default is used")


def say_pure(reader: Reader, key: str) -> None:
    """Weights, sums and states in 16 bits throughout, because of *key*; DeepSpeed has fp32 ones all the same."""
    reader.say("training.autocast", False, key)
    if not reader.peek("deepspeed"):
        for name, value in (("weights", "training"), ("master", False), ("accumulation", "training")):
            reader.say(f"framework.memory.states.{name}", value, key)


def say_sharding(reader: Reader, *, version: int = 0, shard: int = 0, section_alone: bool = False) -> None:
    """DeepSpeed, FSDP or plain replicas, and the framework that this is.

    *version* and *shard* (ranks that share) are what the tool says elsewhere; *section_alone*: ``fsdp_config`` turns
    FSDP on without ``fsdp``.
    """
    if isinstance(reader.peek("deepspeed"), str | Mapping) and reader.peek("deepspeed"):
        _deepspeed(reader)
    elif _wrapped(reader) or (section_alone and reader.mapping("fsdp_config")):
        words = {word.casefold() for word in _words(reader)}
        chosen = next((w for w in words if "shard" in w), "")
        wrap = "TRANSFORMER_BASED_WRAP" if words & {"auto_wrap"} or reader.has(_OLD) or _classes(reader) else ""
        how = Wrapping(version=version, shard=shard, strategy=chosen, wrap=wrap, whose="the Trainer")
        found = read_fsdp(reader, "fsdp_config", replace(how, offload="offload" in words))
        reader.assume("framework", f"transformers-fsdp{found}", "the Trainer runs models of transformers")
        if (low := next((w for w in ("bf16", "fp16") if reader.peek(w) is True), "")):  # fmt: skip
            reader.assume("training.gradient_dtype", low, "accelerate reduces gradients in the compute dtype")
    else:
        reader.assume("sharding.strategy", "ddp", "the Trainer's default is DistributedDataParallel")
        reader.assume("framework", "transformers-ddp", "the Trainer runs models of transformers")


_OLD = "fsdp_transformer_layer_cls_to_wrap"


def _deepspeed(reader: Reader) -> None:
    reader.say("framework", "transformers-deepspeed", "deepspeed")
    if isinstance(reader.peek("deepspeed"), str):
        reader.refer("deepspeed", "ZeRO's stage, buckets and offload")
        return
    whole = reader.document
    inner = Document(whole.name, reader.raw("deepspeed"), whole.origin.part(("deepspeed",)), whole.error)
    reader.adopt("deepspeed", read_document(inner))


def _wrapped(reader: Reader) -> bool:
    """Whether FSDP is on; a path in the place of its section is followed."""
    if isinstance(reader.peek("fsdp_config"), str):
        reader.warn("fsdp_config", "not read: a file of its own; write its keys under fsdp_config")
    on = reader.peek("fsdp")
    return bool(on) and on not in (False, "false", "False")


def _words(reader: Reader) -> list[str]:
    """The words under ``fsdp``, as one text or a list."""
    value = reader.raw("fsdp")
    if value is None:
        return []
    words = value if isinstance(value, list) else str(value).replace(",", " ").split()
    if isinstance(value, bool):
        words = []
    elif not all(isinstance(word, str) for word in words) or isinstance(value, Mapping | float | int):
        raise reader.fail("fsdp", "expected words such as full_shard auto_wrap")
    known = {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2", "offload", "auto_wrap"}
    for word in words:
        if word.casefold() not in known:
            raise reader.fail("fsdp", f"{word[:40]!r} is not known; known: {', '.join(sorted(known))}")
    reader.use("fsdp", f"FSDP: {' '.join(words) or 'on'}")
    return list(words)


def _classes(reader: Reader) -> bool:
    """Whether the classes of layers to wrap are named."""
    names = ("transformer_layer_cls_to_wrap", "fsdp_transformer_layer_cls_to_wrap")
    return any(reader.has(f"fsdp_config.{name}") for name in names)


def _compiled(reader: Reader) -> None:
    backend = (reader.text("torch_compile_backend") or "").casefold()
    key = "torch_compile" if reader.flag("torch_compile", besides=("auto",)) is True else ""
    key = key or ("torch_compile_backend" if backend else "")
    if key and backend in ("", "inductor"):
        reader.say("framework.compiled", True, key)
    elif key:
        reader.warn("torch_compile_backend", f"not modelled: the compiler {backend}; inductor is framework.compiled")
