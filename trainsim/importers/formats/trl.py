"""
Arguments of Hugging Face's Trainer as a file: TRL's configurations, and TrainingArguments as JSON or YAML.
"""

from __future__ import annotations

from trainsim.importers.adapters import say_adapters
from trainsim.importers.findings import Findings
from trainsim.importers.hub import say_model
from trainsim.importers.importer import Importer, Key, no_effect, not_modelled, read, register
from trainsim.importers.reader import Reader
from trainsim.importers.source import Source
from trainsim.importers.trainer import TRAINER_KEYS, read_batches, read_precision, read_trainer, say_attention

TRAINER = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs", "output_dir", "optim",
           "learning_rate", "gradient_checkpointing", "bf16", "fp16", "deepspeed", "fsdp", "logging_steps")  # fmt: skip
OWN = ("use_peft", "lora_r", "dataset_name", "attn_implementation", "max_length", "max_seq_length", "num_generations",
       "max_completion_length", "dataset_text_field", "use_vllm", "assistant_only_loss")  # fmt: skip
OTHERS = ("template", "finetuning_type", "cutoff_len", "stage", "base_model", "zero_optimization")
"""Keys of tools that are built on the same arguments."""


def sniff(source: Source) -> float:
    """Sure of a batch per device beside another of the Trainer's arguments, and more so of TRL's own."""
    trainer, own = source.has(*TRAINER), source.has(*OWN)
    by_batch = source.has("per_device_train_batch_size", "per_gpu_train_batch_size") and trainer >= 2
    if source.has(*OTHERS) or not (by_batch or (own and source.has("model_name_or_path"))):
        return 0.0
    return min(0.9, 0.4 + 0.1 * trainer + 0.1 * own)


def load(source: Source) -> Findings:
    """Facts of the model, adapters, batches, precision and generation; everything else is told."""
    reader = Reader(source.document, KEYS)
    by_trl = bool(source.has(*OWN))
    say_model(reader, "model_name_or_path")
    _adapters(reader)
    read_batches(reader)
    if by_trl and not any(reader.has(name) for name in ("bf16", "fp16")):
        reader.assume("training.precision", "bf16", "TRL's default of bf16 is true")
    else:
        read_precision(reader)
    if by_trl and not reader.has("gradient_checkpointing"):
        reader.assume("training.recompute", "full", "TRL's default of gradient_checkpointing is true")
    _sequences(reader, by_trl)
    if reader.has("attn_implementation"):
        say_attention(reader, "attn_implementation")
    if reader.flag("activation_offloading"):
        reader.say("training.activation_offload", "cpu", "activation_offloading")
    _generation(reader)
    read_trainer(reader)
    return reader.findings("trl")


def _adapters(reader: Reader) -> None:
    if reader.flag("use_peft"):
        reader.use("use_peft", "model.lora")
        say_adapters(reader, "lora_r", "lora_target_modules", usual=16, whose="TRL")
        for bits, stored in (("load_in_4bit", "nf4"), ("load_in_8bit", "int8")):
            if reader.flag(bits):
                reader.say("model.lora.base_dtype", stored, bits)
    else:
        for name in ("lora_r", "lora_target_modules", "load_in_4bit", "load_in_8bit"):
            if reader.has(name):
                reader.ignore(name, "TRL looks at it with use_peft: true only")


def _sequences(reader: Reader, by_trl: bool) -> None:
    key = next((name for name in ("max_length", "max_seq_length") if reader.has(name)), "")
    if key:
        reader.say("training.sequence_length", reader.whole(key), key)
    elif by_trl and not reader.has("max_completion_length"):
        reader.assume("training.sequence_length", 1024, "TRL's default of max_length")
    elif not by_trl:
        reader.leave_open("output_dir", "training.sequence_length", "the script decides") if reader.has(
            "output_dir"
        ) else 0
    if reader.flag("packing"):
        reader.leave_open("packing", "training.documents", "full sequences of documents; how long are they?")
    elif key:
        words = "sequences are at most so long, and all are taken to be; with training.padding: longest they cost less"
        reader.leave_open(key, "training.documents", words)


def _generation(reader: Reader) -> None:
    """What GRPO and its relatives generate before each step."""
    if not (reader.has("num_generations") or reader.has("max_completion_length")):
        return
    for name, ours, usual in (
        ("max_prompt_length", "prompt_length", 512),
        ("max_completion_length", "response_length", 256),
    ):
        if reader.has(name):
            reader.say(f"training.rollout.{ours}", reader.whole(name), name)
        else:
            reader.assume(f"training.rollout.{ours}", usual, f"TRL's default of {name}")
    _engine(reader)
    if reader.flag("use_vllm") is not True:
        reader.leave_open("num_generations" if reader.has("num_generations") else "max_completion_length",
                          "training.rollout.kv_cache",
                          "without use_vllm transformers generates, which is slower")  # fmt: skip
    if reader.word("vllm_mode", ("server", "colocate")) == "server":
        reader.warn("vllm_mode", "not modelled as such: say --set training.rollout.placement=separate and its nodes")
    scored = int(bool(reader.number("beta"))) + int((reader.whole("num_iterations") or 1) > 1)
    sources = [name for name in ("beta", "num_iterations") if reader.has(name)]
    if sources:
        reader.say("training.rollout.scored_by", scored, *sources)


def _engine(reader: Reader) -> None:
    """How vLLM is set up."""
    if reader.whole("num_generations"):
        reader.use("num_generations", "sequences per prompt are among those of training.global_batch")
    if reader.has("vllm_gpu_memory_utilization"):
        share = reader.number("vllm_gpu_memory_utilization", high=1.0)
        reader.say("training.rollout.gpu_memory_utilization", share, "vllm_gpu_memory_utilization")
    if reader.has("vllm_tensor_parallel_size"):
        reader.say("training.rollout.tp", reader.whole("vllm_tensor_parallel_size"), "vllm_tensor_parallel_size")
    if (sleeps := reader.flag("vllm_enable_sleep_mode")) is not None:
        reader.say("training.rollout.sleep", sleeps, "vllm_enable_sleep_mode")


KEYS: tuple[Key, ...] = (
    read("model_name_or_path", "model: a name of the Hub that is in the catalogue, or the config.json there"),
    read("use_peft", "model.lora"),
    read("lora_r", "model.lora.rank"),
    read("lora_target_modules", "model.lora.targets"),
    read("load_in_4bit", "model.lora.base_dtype: nf4"),
    read("load_in_8bit", "model.lora.base_dtype: int8"),
    read("attn_implementation", "training.attention"),
    read("max_length", "training.sequence_length"),
    read("max_seq_length", "training.sequence_length (old)"),
    read("packing", "training.documents stays open"),
    read("activation_offloading", "training.activation_offload: cpu"),
    read("max_prompt_length", "training.rollout.prompt_length"),
    read("max_completion_length", "training.rollout.response_length"),
    read("num_generations", "training.rollout"),
    read("use_vllm", "training.rollout"),
    read("vllm_mode", "training.rollout.placement"),
    read("vllm_gpu_memory_utilization", "training.rollout.gpu_memory_utilization"),
    read("vllm_tensor_parallel_size", "training.rollout.tp"),
    read("vllm_enable_sleep_mode", "training.rollout.sleep"),
    read("beta", "training.rollout.scored_by: a reference model, where it is not 0"),
    read("num_iterations", "training.rollout.scored_by: the old policy, above 1"),
    *TRAINER_KEYS,
    *no_effect("which data, and how they are told apart", "dataset_*", "datasets", "datasets.**", "eos_token",
               "pad_token",
               "chat_template_path", "completion_only_loss", "assistant_only_loss", "pad_to_multiple_of",
               "eval_packing",
               "packing_strategy", "shuffle_dataset", "max_samples", "streaming", "truncation_mode"),
    *no_effect("how the model is loaded", "trust_remote_code", "model_revision", "model_init_kwargs.**", "bnb_4bit_*",
               "use_bnb_nested_quant", "torch_dtype", "dtype", "device_map", "tokenizer_name*", "cache_dir",
               "config_name",
               "model_type", "token", "use_auth_token"),
    *no_effect("numbers that cost nothing", "lora_alpha", "lora_dropout", "lora_task_type", "use_rslora", "temperature",
               "top_p", "top_k", "min_p", "repetition_penalty", "epsilon*", "delta", "scale_rewards", "reward_*",
               "importance_sampling_level", "mask_truncated_completions", "sync_ref_model", "ref_model_*",
               "wandb_log_unique_prompts", "log_completions", "num_completions_to_print", "vllm_server_*",
               "vllm_model_impl", "loss_type", "dft_alpha", "label_pad_token_id", "loss_weights", "advantage_*"),
    *not_modelled("adapters of another kind", "use_dora", "lora_modules_to_save", "lora_target_parameters",
                  harmless=(False,)),
    *not_modelled("sequences without padding between documents", "padding_free", harmless=(False,)),
    *not_modelled("samples that are used again or made in advance", "steps_per_generation", "generation_batch_size"),
    *not_modelled("further models or sequences per example", "precompute_ref_log_probs", "reference_free",
                  harmless=(False,)),
    *not_modelled("paged caches of transformers", "use_transformers_paged", "cache_implementation", harmless=(False,)),
)  # fmt: skip

register(
    Importer(
        name="trl",
        title="TRL's configurations and Hugging Face TrainingArguments",
        about="The YAML that `trl sft --config` and its relatives take, or TrainingArguments as JSON or YAML.",
        leaves_open="The machine, the number of GPUs (accelerate's configuration says it), and without TRL the model.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "What is not written is the tool's default: a batch of 8 per GPU, and with TRL bf16, recomputation and "
            "sequences of 1,024 tokens.",
            "With `num_generations` the sequences that a step generates are part of it ([rollouts](../rollout.md)).",
        ),
    )
)
