"""
LLaMA-Factory's training YAML: the Trainer's arguments with the model, the adapters and the data beside them.
"""

from __future__ import annotations

from trainsim.importers.adapters import say_adapters
from trainsim.importers.findings import Findings
from trainsim.importers.hub import say_model
from trainsim.importers.importer import Importer, Key, no_effect, not_modelled, read, register
from trainsim.importers.reader import Reader
from trainsim.importers.source import Source
from trainsim.importers.trainer import (
    TRAINER_KEYS,
    read_batches,
    read_precision,
    read_trainer,
    say_attention,
    say_liger,
    say_pure,
)

OWN = ("finetuning_type", "template", "cutoff_len", "dataset_dir", "lora_target", "stage")
STAGES = ("pt", "sft", "rm", "ppo", "dpo", "kto")
TWICE = ("rm", "dpo", "kto")
"""Stages that put two sequences of every example through the model."""


def sniff(source: Source) -> float:
    """Sure of a model beside words that only this tool has."""
    if not source.has("model_name_or_path"):
        return 0.0
    return min(0.95, 0.3 * source.has(*OWN))


def load(source: Source) -> Findings:
    """Facts of the model, adapters, batches and precision; everything else is told."""
    reader = Reader(source.document, KEYS)
    say_model(reader, "model_name_or_path")
    _stage(reader)
    _finetuning(reader)
    _sequences(reader)
    read_batches(reader)
    precision = read_precision(reader)
    _pure(reader, precision)
    _recomputation(reader)
    attention = (reader.text("flash_attn") or "auto").casefold()
    if attention == "auto":
        reader.assume("training.attention", "sdpa", "LLaMA-Factory's default (flash_attn: auto) is PyTorch's attention")
    else:
        say_attention(reader, "flash_attn")
    if reader.flag("enable_liger_kernel"):
        say_liger(reader, "enable_liger_kernel")
    _optimizer(reader)
    read_trainer(reader)
    return reader.findings("llama-factory")


def _stage(reader: Reader) -> None:
    stage = reader.word("stage", STAGES) or "sft"
    if stage in TWICE:
        words = f"not modelled: {stage} puts two sequences per example through the model, and a reference model as well"
        reader.warn("stage", f"{words}; double training.micro_batch")
    elif stage == "ppo":
        reader.warn("stage", "not modelled: alternating generation and four models; see training.rollout")
    elif reader.has("stage"):
        reader.use("stage", "a step over one sequence per example")
    if reader.flag("do_train") is False:
        reader.warn("do_train", "nothing is trained; a step of training is simulated all the same")


def _finetuning(reader: Reader) -> None:
    kind = reader.word("finetuning_type", ("lora", "full", "freeze", "oft")) or "lora"
    if kind == "lora":
        say_adapters(reader, "lora_rank", "lora_target", usual=8, whose="LLaMA-Factory", everything=True)
        if reader.has("finetuning_type"):
            reader.use("finetuning_type", "model.lora")
        _frozen(reader)
    elif kind == "full":
        reader.use("finetuning_type", "all parameters are trained")
        if reader.has("quantization_bit"):
            raise reader.fail(
                "quantization_bit", "quantised weights are for finetuning_type: lora; these are all trained"
            )
    else:
        words = {"freeze": "the last layers alone are trained", "oft": "orthogonal adapters"}[kind]
        reader.warn("finetuning_type", f"not modelled: {words}; all parameters are trained here")


def _frozen(reader: Reader) -> None:
    """How the weights under the adapters are kept."""
    bits = reader.whole("quantization_bit")
    kind = reader.word("quantization_type", ("nf4", "fp4")) or "nf4"
    method = (reader.text("quantization_method") or "bnb").casefold()
    if bits is None:
        reader.assume("model.lora.base_dtype", "bf16", "LLaMA-Factory loads frozen weights in the compute dtype")
    elif bits == 8 and method in ("bnb", "bitsandbytes"):
        reader.say("model.lora.base_dtype", "int8", "quantization_bit")
    elif bits == 4:
        reader.say("model.lora.base_dtype", "nf4", "quantization_bit")
        if kind == "fp4" or method not in ("bnb", "bitsandbytes"):
            key = "quantization_type" if kind == "fp4" else "quantization_method"
            reader.warn(key, f"not modelled: {kind if kind == 'fp4' else method}; nf4 has as many bits")
    else:
        reader.warn(
            "quantization_bit", f"not modelled: frozen weights in {bits} bits by {method}; they are kept in bf16"
        )


def _sequences(reader: Reader) -> None:
    if (length := reader.whole("cutoff_len")) is not None:
        reader.say("training.sequence_length", length, "cutoff_len")
    else:
        reader.assume("training.sequence_length", 2048, "LLaMA-Factory's default of cutoff_len")
    neat = reader.flag("neat_packing")
    if neat:
        reader.leave_open(
            "neat_packing", "training.documents", "packed documents see themselves alone; how long are they?"
        )
    elif reader.flag("packing") or (reader.peek("stage") == "pt" and not reader.has("packing")):
        reader.use("packing" if reader.has("packing") else "stage", "full sequences, attention across documents")
    elif reader.has(key := "packing" if reader.has("packing") else "cutoff_len"):
        words = "sequences are at most so long, and all are taken to be; with training.padding: longest they cost less"
        reader.leave_open(key, "training.documents", words)


def _pure(reader: Reader, precision: str) -> None:
    """Weights and states in 16 bits throughout."""
    if not reader.flag("pure_bf16"):
        return
    reader.say("training.precision", "bf16", "pure_bf16")
    say_pure(reader, "pure_bf16")
    if precision == "fp16":
        raise reader.fail("pure_bf16", "fp16 is true as well; one of them can be")


def _recomputation(reader: Reader) -> None:
    """LLaMA-Factory turns it on by itself."""
    if reader.flag("disable_gradient_checkpointing"):
        reader.say("training.recompute", "none", "disable_gradient_checkpointing")
    elif not reader.has("gradient_checkpointing"):
        reader.assume(
            "training.recompute", "full", "LLaMA-Factory recomputes layers unless disable_gradient_checkpointing"
        )
    if reader.flag("use_unsloth_gc"):
        reader.say("training.activation_offload", "cpu", "use_unsloth_gc")
        reader.say("training.recompute", "full", "use_unsloth_gc")


def _optimizer(reader: Reader) -> None:
    for name in ("use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon"):
        if not reader.flag(name):
            continue
        if name == "use_muon":
            reader.say("training.optimizer", "muon", name)
        else:
            reader.warn(name, f"not modelled: {name.removeprefix('use_')}; the optimizer under optim is taken")


KEYS: tuple[Key, ...] = (
    read("model_name_or_path", "model: a name of the Hub that is in the catalogue, or the config.json there"),
    read("stage", "reported where more than one sequence or model is needed"),
    read("finetuning_type", "model.lora, or all parameters"),
    read("lora_rank", "model.lora.rank"),
    read("lora_target", "model.lora.targets"),
    read("quantization_bit", "model.lora.base_dtype: nf4 (4) or int8 (8)"),
    read("quantization_type", "fp4 is reported"),
    read("quantization_method", "others than bitsandbytes are reported"),
    read("cutoff_len", "training.sequence_length"),
    read("packing", "full sequences"),
    read("neat_packing", "training.documents stays open"),
    read("pure_bf16", "training.precision, framework.memory.states: all in bf16"),
    read("flash_attn", "training.attention"),
    read("enable_liger_kernel", "training.cross_entropy: fused_linear, framework.kernels.fused"),
    read("disable_gradient_checkpointing", "training.recompute: none"),
    read("use_unsloth_gc", "training.activation_offload: cpu"),
    read("use_muon", "training.optimizer: muon"),
    read("do_train", "false is reported"),
    *(read(name, "true is reported") for name in ("use_galore", "use_apollo", "use_badam", "use_adam_mini")),
    *TRAINER_KEYS,
    *no_effect("which data, and how they are told apart", "template", "dataset", "eval_dataset", "dataset_dir",
               "media_dir", "mix_strategy", "interleave_probs", "overwrite_cache", "preprocessing_*", "max_samples",
               "streaming", "buffer_size", "val_size", "tokenized_path", "tool_format", "train_on_prompt",
               "mask_history",
               "ignore_pad_token_for_loss", "data_shared_file_system", "default_system", "enable_thinking",
               "eval_num_beams", "ddp_timeout_seconds"),
    *no_effect("how the model is found and loaded", "trust_remote_code", "cache_dir", "use_fast_tokenizer",
               "model_revision", "low_cpu_mem_usage", "hf_hub_token", "ms_hub_token", "om_hub_token", "adapter_folder",
               "adapter_name_or_path", "create_new_adapter", "split_special_tokens", "print_param_status",
               "offload_folder",
               "quantization_device_map", "use_kv_cache", "train_from_scratch", "infer_*", "export_*", "vllm_*",
               "sglang_*",
               "compute_accuracy", "disable_shuffling", "early_stopping_steps"),
    *no_effect("numbers of adapters that cost nothing", "lora_alpha", "lora_dropout", "use_rslora", "loraplus_*",
               "pissa_*", "double_quantization", "moe_aux_loss_coef", "rope_scaling", "galore_*", "apollo_*", "badam_*",
               "use_swanlab", "swanlab_*", "image_*", "video_*", "audio_*", "use_audio_in_video", "crop_to_patches",
               "use_reentrant_gc", "ray_*", "placement_strategy", "resources_per_worker", "master_addr", "master_port"),
    *no_effect("of other stages", "pref_*", "dpo_*", "kto_*", "simpo_gamma", "ppo_*", "reward_model*", "ref_model*",
               "ld_alpha"),
    *not_modelled("adapters of another kind", "use_dora", "additional_target", "oft_*", "module_dropout",
                  harmless=(False,)),
    *not_modelled("which layers are trained", "freeze_*", "use_llama_pro", "mixture_of_depths", harmless=(False,)),
    *not_modelled("another vocabulary", "resize_vocab", "add_tokens", "add_special_tokens", harmless=(False,)),
    *not_modelled("other kernels", "use_unsloth", "shift_attn", "use_v1_kernels", "use_kt", "kt_*", harmless=(False,)),
    *not_modelled("norms or logits in fp32", "upcast_layernorm", "upcast_lmhead_output", harmless=(False,)),
    *not_modelled("fp8 training", "fp8", "fp8_*", harmless=(False, "auto")),
    *not_modelled("a loss of another kind", "use_dft_loss", "use_asft_loss", harmless=(False,)),
)  # fmt: skip

register(
    Importer(
        name="llama-factory",
        title="LLaMA-Factory's training configuration",
        about="The YAML that `llamafactory-cli train` takes.",
        leaves_open="The machine and the number of GPUs; how long the sequences of the data are.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "What is not written is LLaMA-Factory's default: LoRA of rank 8 on all linear layers, a batch of 8, "
            "sequences of 2,048 tokens, recomputation of all layers.",
            "`deepspeed:` is followed; its `auto` values are the arguments of this file.",
        ),
    )
)
