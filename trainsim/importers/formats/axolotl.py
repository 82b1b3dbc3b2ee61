"""
Axolotl's training YAML: model, adapter, packed sequences, and what of the Trainer, DeepSpeed and FSDP it sets.
"""

from __future__ import annotations

from math import prod

from trainsim.importers.adapters import say_adapters
from trainsim.importers.findings import Findings
from trainsim.importers.hub import say_model
from trainsim.importers.importer import Importer, Key, no_effect, not_modelled, read, register
from trainsim.importers.optimizers import say_optimizer
from trainsim.importers.reader import Reader
from trainsim.importers.source import Source
from trainsim.importers.trainer import LIGER, TRAINER_KEYS, say_pure, say_sharding

OWN = ("micro_batch_size", "sequence_len", "adapter", "datasets", "sample_packing", "val_set_size", "num_epochs")
ATTENTIONS = {"flash_attention": "flash2", "sdp_attention": "sdpa", "xformers_attention": "xformers",
              "eager_attention": "eager"}  # fmt: skip
PLUGINS = {
    "liger.LigerPlugin": "liger_* switch its kernels on",
    "cut_cross_entropy.CutCrossEntropyPlugin": "training.cross_entropy: fused_linear",
}
LIGERS = {"liger_rms_norm": "norm", "liger_rope": "rotary", "liger_glu_activation": "activation"}


def sniff(source: Source) -> float:
    """Sure of a base model beside words that only this tool has."""
    return min(0.95, 0.3 * source.has(*OWN)) if source.has("base_model") else 0.0


def load(source: Source) -> Findings:
    """Facts of the model, adapters, batches and precision; everything else is told."""
    reader = Reader(source.document, KEYS)
    say_model(reader, "base_model")
    _adapter(reader)
    _batches(reader)
    _precision(reader)
    _recomputation(reader)
    _attention(reader)
    _kernels(reader)
    _degrees(reader)
    if reader.has("optimizer"):
        say_optimizer(reader, "optimizer")
    else:
        reader.assume("training.optimizer", "adamw", "axolotl's default of optimizer is adamw_torch_fused")
    if reader.word("rl", ("dpo", "gdpo", "grpo", "ipo", "orpo", "kto", "simpo")):
        reader.warn("rl", "not modelled: further sequences or models per example; one sequence is trained on here")
    version = reader.whole("fsdp_version") or 0
    say_sharding(reader, version=version, shard=_hybrid(reader), section_alone=True)
    return reader.findings("axolotl")


def _adapter(reader: Reader) -> None:
    kind = reader.word("adapter", ("lora", "qlora", "llama-adapter"))
    if kind is None:
        return
    if kind == "llama-adapter":
        reader.warn("adapter", "not modelled: llama-adapter; all parameters are trained here")
        return
    reader.use("adapter", "model.lora")
    every = bool(reader.flag("lora_target_linear"))
    if every:
        reader.say("model.lora.targets", ["all"], "lora_target_linear")
        reader.say("model.lora.rank", reader.whole("lora_r"), "lora_r")
    else:
        say_adapters(reader, "lora_r", "lora_target_modules", usual=None, whose="axolotl")
    if kind == "qlora" or reader.flag("load_in_4bit"):
        reader.say("model.lora.base_dtype", "nf4", "adapter" if kind == "qlora" else "load_in_4bit")
    elif reader.flag("load_in_8bit"):
        reader.say("model.lora.base_dtype", "int8", "load_in_8bit")
    else:
        reader.assume("model.lora.base_dtype", "bf16", "axolotl loads frozen weights in the compute dtype")


def _batches(reader: Reader) -> None:
    reader.say("training.micro_batch", reader.whole("micro_batch_size"), "micro_batch_size")
    steps = "gradient_accumulation_steps"
    reader.say("training.gradient_accumulation", reader.whole(steps), steps)
    if not reader.has("micro_batch_size"):
        reader.assume("training.micro_batch", 1, "axolotl's default of micro_batch_size")
    if reader.has("batch_size") and not reader.has(steps):
        reader.say("training.global_batch", reader.whole("batch_size"), "batch_size")
    elif not reader.has(steps):
        reader.assume("training.gradient_accumulation", 1, f"axolotl's default of {steps}")
    if (length := reader.whole("sequence_len")) is not None:
        reader.say("training.sequence_length", length, "sequence_len")
    else:
        reader.assume("training.sequence_length", 512, "axolotl's default of sequence_len")
    if reader.flag("sample_packing"):
        reader.leave_open(
            "sample_packing", "training.documents", "full sequences of documents that see themselves alone"
        )
    elif reader.has("sequence_len") and not reader.flag("pad_to_sequence_len"):
        words = "sequences are at most so long, and all are taken to be; with training.padding: longest they cost less"
        reader.leave_open("sequence_len", "training.documents", words)


def _precision(reader: Reader) -> None:
    """16 bits by autocast, or all in 16 bits where bfloat16 or float16 says so."""
    flags = {"bf16": "bf16", "fp16": "fp16", "bfloat16": "bf16", "float16": "fp16"}
    on = [name for name in flags if reader.flag(name, besides=("auto", "full")) in (True, "full")]
    if len({flags[name] for name in on}) > 1:
        raise reader.fail(on[1], f"{on[0]} is on as well; one of them can be")
    whole = [name for name in on if name in ("bfloat16", "float16") or reader.raw(name) == "full"]
    if on:
        reader.say("training.precision", flags[on[0]], *on)
    elif reader.peek("bf16") == "auto" or not any(reader.has(name) for name in flags):
        reader.assume("training.precision", "bf16", "axolotl's bf16: auto is bf16 where the GPU has it")
        if reader.has("bf16"):
            reader.use("bf16", "training.precision: bf16 where the GPU has it, else fp16")
    elif reader.flag("tf32"):
        reader.say("training.precision", "tf32", "tf32")
    else:
        reader.assume("training.precision", "fp32", "neither bf16 nor fp16 is on")
    for name in whole[:1]:
        say_pure(reader, name)


def _recomputation(reader: Reader) -> None:
    mode = reader.flag("gradient_checkpointing", besides=("offload", "offload_disk", "unsloth"))
    if mode:
        reader.say("training.recompute", "full", "gradient_checkpointing")
    if isinstance(mode, str):
        reader.say("training.activation_offload", "cpu", "gradient_checkpointing")
        if mode == "offload_disk":
            reader.warn(
                "gradient_checkpointing", "not modelled: inputs of layers on a drive; here they are on the host"
            )
    offload = reader.flag("activation_offloading", besides=("legacy", "disk", "hidden_states"))
    if offload:
        reader.say("training.activation_offload", "cpu", "activation_offloading")
        if offload == "disk":
            reader.warn("activation_offloading", "not modelled: activations on a drive; here they are on the host")


def _attention(reader: Reader) -> None:
    on = [name for name in ATTENTIONS if reader.flag(name)]
    if len(on) > 1:
        raise reader.fail(on[1], f"{on[0]} is true as well; axolotl takes one kernel of attention")
    if on:
        reader.say("training.attention", ATTENTIONS[on[0]], on[0])
    else:
        reader.assume("training.attention", "sdpa", "the default of transformers")


def _kernels(reader: Reader) -> None:
    for n, name in enumerate(reader.listing("plugins") or ()):
        known = next((words for plugin, words in PLUGINS.items() if str(name).endswith(plugin)), None)
        if known is None:
            reader.warn("plugins", f"not modelled: {str(name)[:60]}")
        elif "cross_entropy" in known:
            reader.say("training.cross_entropy", "fused_linear", "plugins")
        else:
            reader.use("plugins", f"{n + 1}: {known}")
    for key in ("cut_cross_entropy", "liger_fused_linear_cross_entropy"):
        if reader.flag(key):
            reader.say("training.cross_entropy", "fused_linear", key)
    if reader.flag("chunked_cross_entropy"):
        reader.say("training.cross_entropy", "chunked", "chunked_cross_entropy")
    for key, ours in LIGERS.items():
        if reader.flag(key):
            reader.say(f"framework.kernels.fused.{ours}", True, key)
            reader.use(key, LIGER[ours])
    if reader.flag("torch_compile", besides=("auto",)):
        reader.say("framework.compiled", True, "torch_compile")


def _degrees(reader: Reader) -> None:
    reader.say("parallel.tp", reader.whole("tensor_parallel_size"), "tensor_parallel_size")
    for key in ("context_parallel_size", "sequence_parallel_degree"):
        ranks = reader.whole(key)
        reader.say("parallel.cp", ranks, key)
        if ranks and ranks > 1:
            reader.say("parallel.context_parallel", "ring", key)
    dp = [(key, reader.whole(key)) for key in ("dp_replicate_size", "dp_shard_size")]
    given = [key for key, size in dp if size]
    if given:
        replicas = (dp[0][1] or 1) * (dp[1][1] or 1)
        reader.say("parallel.dp", replicas, *given)
        cut = [
            reader.whole(k) or 1 for k in ("tensor_parallel_size", "context_parallel_size", "sequence_parallel_degree")
        ]
        reader.assume("cluster.gpus", replicas * prod(cut), "the product of the degrees")


def _hybrid(reader: Reader) -> int:
    """Ranks that share parameters, where not all replicas do: those that share a sequence too."""
    replicate, shard = reader.whole("dp_replicate_size") or 1, reader.whole("dp_shard_size") or 1
    cp = reader.whole("context_parallel_size") or reader.whole("sequence_parallel_degree") or 1
    return shard * cp if replicate > 1 and shard > 1 else 0


KEYS: tuple[Key, ...] = (
    read("base_model", "model: a name of the Hub that is in the catalogue, or the config.json there"),
    read("adapter", "model.lora; qlora: model.lora.base_dtype: nf4"),
    read("lora_r", "model.lora.rank"),
    read("lora_target_modules", "model.lora.targets"),
    read("lora_target_linear", "model.lora.targets: all"),
    read("load_in_4bit", "model.lora.base_dtype: nf4"),
    read("load_in_8bit", "model.lora.base_dtype: int8"),
    read("micro_batch_size", "training.micro_batch"),
    read("batch_size", "training.global_batch, where gradient_accumulation_steps is missing"),
    read("sequence_len", "training.sequence_length"),
    read("sample_packing", "training.documents stays open"),
    read("pad_to_sequence_len", "all sequences are full"),
    read("bfloat16", "training.precision, framework.memory.states: all in bf16"),
    read("float16", "training.precision, framework.memory.states: all in fp16"),
    read("activation_offloading", "training.activation_offload: cpu"),
    *(read(name, f"training.attention: {ours}") for name, ours in ATTENTIONS.items()),
    read("plugins", "Liger and cut cross entropy"),
    read("cut_cross_entropy", "training.cross_entropy: fused_linear"),
    read("liger_fused_linear_cross_entropy", "training.cross_entropy: fused_linear"),
    read("chunked_cross_entropy", "training.cross_entropy: chunked"),
    *(read(name, f"framework.kernels.fused.{ours}") for name, ours in LIGERS.items()),
    read("tensor_parallel_size", "parallel.tp"),
    read("context_parallel_size", "parallel.cp"),
    read("sequence_parallel_degree", "parallel.cp (old)"),
    read("dp_replicate_size", "parallel.dp, sharding.strategy: hsdp"),
    read("dp_shard_size", "parallel.dp, sharding.shard_size"),
    read("fsdp_version", "framework: FSDP1 or FSDP2"),
    read("optimizer", "training.optimizer"),
    read("rl", "reported"),
    *(key for key in TRAINER_KEYS if key.name not in ("per_device_train_batch_size", "optim", "use_liger_kernel")),
    *no_effect("which data, and how they are told apart", "datasets", "datasets.**", "test_datasets", "dataset_*",
               "shuffle_*", "val_set_size", "chat_template*", "default_system_message", "train_on_inputs",
               "special_tokens.**",
               "tokens", "added_tokens_overrides.**", "eot_tokens", "min_sample_len", "sample_packing_*",
               "pretraining_*",
               "skip_prepare_dataset", "strict", "eval_sample_packing", "multipack_real_batches",
               "excess_length_strategy",
               "curriculum_sampling", "streaming*", "pretrain_multipack_*", "max_prompt_len", "batch_flattening"),
    *no_effect("how the model is found and loaded", "base_model_config", "base_model_ignore_patterns", "model_type",
               "tokenizer_*", "trust_remote_code", "revision_of_model", "is_*_derived_model", "cls_model_config",
               "device_map", "max_memory", "gpu_memory_limit", "low_cpu_mem_usage", "lora_on_cpu", "hf_use_auth_token",
               "lora_model_dir", "qlora_sharded_model_loading", "processor_type", "device", "world_size", "ddp",
               "resize_token_embeddings_to_32x", "mean_resizing_embeddings", "experimental_skip_move_to_device"),
    *no_effect("numbers of adapters and learning that cost nothing", "lora_alpha", "lora_dropout",
               "lora_fan_in_fan_out",
               "peft_use_rslora", "loraplus_*", "lr_scheduler", "cosine_*", "lr_div_factor", "embedding_lr*",
               "rl_beta", "peft_init_lora_weights", "bnb_config_kwargs.**", "loss_watchdog_*",
               "peft_autocast_adapter_dtype"),
    *no_effect("what is logged, evaluated and saved", "evals_per_epoch", "saves_per_epoch", "early_stopping_patience",
               "mlflow_*", "comet_*", "use_*board", "use_wandb", "use_mlflow", "gc_steps", "profiler_steps*",
               "auto_resume_*",
               "bench_*", "axolotl_version", "gradio_*", "warmup_ratio", "sdp_*_kernel", "ring_attn_func",
               "heads_k_stride", "fsdp_final_state_dict_type", "config_path"),
    *not_modelled("kernels of adapters in Triton", "lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "unsloth_*",
                  "flash_attn_*", "flash_optimum", "liger_layer_norm", "liger_cross_entropy", "liger_use_token_scaling",
                  harmless=(False,)),
    *not_modelled("attention in other forms", "flex_attention", "s2_attention", "sage_attention", harmless=(False,)),
    *not_modelled("adapters of another kind", "peft_use_dora", "lora_modules_to_save", "peft.**", "relora*", "gptq",
                  "peft_layers_to_transform", "peft_layer_replication", "lora_target_parameters", "lisa_*",
                  "unfrozen_parameters", "loftq_*", "merge_lora", harmless=(False, [])),
    *not_modelled("types below 16 bits", "fp8", "fp8_*", "qat.**", "quantization.**", "nvfp4.**", harmless=(False,)),
    *not_modelled("experts of another kind", "llama4_linearized_experts", "use_kernels", "expert_parallel_size",
                  harmless=(False, 1)),
    *not_modelled("generation and further models", "trl.**", "vllm.**", "dpo_*", "kto_*", "reward_model",
                  "process_reward_model", "orpo_alpha", "simpo_gamma", "cpo_alpha", "rpo_alpha", harmless=(False,)),
    *not_modelled("further passes", "use_pose", "shrink_embeddings", "fix_untrained_tokens", harmless=(False,)),
)  # fmt: skip

register(
    Importer(
        name="axolotl",
        title="axolotl's training configuration",
        about="The YAML that `axolotl train` takes.",
        leaves_open="The machine and the number of GPUs; how long the documents of the data are.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "`sample_packing` fills sequences with documents that see themselves alone: say how long they are with "
            "`--set training.documents=N`, else attention over the whole sequence is simulated.",
            "`deepspeed:` and `fsdp_config:` are read as by the Trainer.",
        ),
    )
)
