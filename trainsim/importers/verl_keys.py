"""
What is known of the keys of verl's configurations (verl/trainer/config).
"""

from __future__ import annotations

from trainsim.importers.importer import Key, no_effect, not_modelled, read

ROOT = "actor_rollout_ref"
ACTOR, MODEL, ROLLOUT = f"{ROOT}.actor", f"{ROOT}.model", f"{ROOT}.rollout"
MEGATRON = {
    "tensor_model_parallel_size": "parallel.tp",
    "pipeline_model_parallel_size": "parallel.pp",
    "virtual_pipeline_model_parallel_size": "pipeline.chunks",
    "context_parallel_size": "parallel.cp",
    "expert_model_parallel_size": "parallel.ep",
    "expert_tensor_parallel_size": "parallel.etp",
}
ENGINE = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
}
"""Whole numbers of the inference engine and the keys of ``training.rollout`` that they are."""

KEYS: tuple[Key, ...] = (
    read("trainer.nnodes", "cluster.nodes, above 1"),
    read("trainer.n_gpus_per_node", "cluster.gpus, with trainer.nnodes"),
    read("trainer.device", "anything but cuda is rejected"),
    read("data.train_batch_size", "training.global_batch and training.rollout.samples, with rollout.n"),
    read("data.max_prompt_length", "training.rollout.prompt_length"),
    read("data.max_response_length", "training.rollout.response_length"),
    read("data.max_length", "training.sequence_length (fine-tuning)"),
    read("data.micro_batch_size_per_gpu", "training.micro_batch (fine-tuning)"),
    read("data.micro_batch_size", "training.micro_batch (fine-tuning, old)"),
    *(read(f"{section}.{name}", becomes) for section in (MODEL, "model") for name, becomes in (
        ("lora_rank", "model.lora.rank"), ("target_modules", "model.lora.targets"),
        ("enable_gradient_checkpointing", "training.recompute: full or none"),
        ("enable_activation_offload", "training.activation_offload: cpu"),
        ("use_liger", "training.cross_entropy: fused_linear, framework.kernels.fused"),
        ("use_fused_kernels", "training.cross_entropy: fused_linear"))),
    read(f"{MODEL}.path", "model: a name of the Hub that is in the catalogue, or the config.json there"),
    read("model.partial_pretrain", "model (fine-tuning)"),
    read("model.strategy", "framework: FSDP1 or FSDP2 (fine-tuning)"),
    read(f"{MODEL}.use_remove_padding", "training.documents stays open"),
    read("use_remove_padding", "training.documents stays open"),
    read(f"{ACTOR}.strategy", "framework and sharding.strategy"),
    read(f"{ACTOR}.ppo_mini_batch_size", "reported if it makes several updates"),
    read(f"{ACTOR}.ppo_epochs", "told, above 1"),
    read(f"{ACTOR}.ppo_micro_batch_size_per_gpu", "training.micro_batch"),
    read(f"{ACTOR}.use_dynamic_bsz", "training.micro_batch, from the maximum tokens per GPU"),
    read(f"{ACTOR}.ppo_max_token_len_per_gpu", "training.micro_batch, with use_dynamic_bsz"),
    read(f"{ACTOR}.ulysses_sequence_parallel_size", "parallel.cp, by Ulysses"),
    read("ulysses_sequence_parallel_size", "parallel.cp, by Ulysses (fine-tuning)"),
    *(read(f"{section}.{name}", becomes) for section in (f"{ACTOR}.fsdp_config",
        "model.fsdp_config") for name, becomes in (
        ("fsdp_size", "sharding.strategy: hsdp, sharding.shard_size"), ("offload_policy", "sharding.offload"),
        ("cpu_offload", "sharding.offload"), ("offload_params", "sharding.offload"),
        ("reshard_after_forward", "sharding.reshard_after_forward (FSDP2)"),
        ("forward_prefetch", "sharding.forward_prefetch"))),
    *(read(f"{ACTOR}.megatron.{name}", becomes) for name, becomes in MEGATRON.items()),
    read(f"{ACTOR}.megatron.sequence_parallel", "parallel.sequence_parallel"),
    read(f"{ACTOR}.megatron.use_distributed_optimizer", "sharding.strategy: zero1 or ddp"),
    *(read(f"{ROLLOUT}.{name}", f"training.rollout.{ours}") for name, ours in ENGINE.items()),
    read(f"{ROLLOUT}.prompt_length", "training.rollout.prompt_length"),
    read(f"{ROLLOUT}.response_length", "training.rollout.response_length"),
    read(f"{ROLLOUT}.gpu_memory_utilization", "training.rollout.gpu_memory_utilization"),
    read(f"{ROLLOUT}.enforce_eager", "training.rollout.enforce_eager"),
    read(f"{ROLLOUT}.free_cache_engine", "training.rollout.sleep"),
    read(f"{ROLLOUT}.n", "training.global_batch and training.rollout.samples"),
    read(f"{ROLLOUT}.name", "engines without paging are reported"),
    read(f"{ACTOR}.use_kl_loss", "training.rollout.scored_by: a reference model"),
    read("algorithm.use_kl_in_reward", "training.rollout.scored_by: a reference model"),
    read("reward_model.enable", "training.rollout.scored_by: a reward model"),
    read("algorithm.adv_estimator", "gae is reported: it trains a critic"),
    read("critic.enable", "false: no critic is trained"),
    read(f"{ACTOR}.entropy_from_logits_with_chunking", "told"),
    read(f"{ACTOR}.entropy_checkpointing", "told"),
    *not_modelled("weights, gradients or states kept on the host while another phase runs, and the copies back",
                  *(f"{section}.{name}" for section in (f"{ACTOR}.fsdp_config", f"{ROOT}.ref.fsdp_config",
                    f"{ACTOR}.megatron", "model.fsdp_config")
                    for name in ("param_offload", "optimizer_offload", "grad_offload")), harmless=(False,)),
    *not_modelled("units by their size", *(f"{section}.fsdp_config.wrap_policy.*" for section in (ACTOR, "model")),
                  harmless=(0,)),
    *not_modelled("types of FSDP", *(f"{section}.fsdp_config.{name}" for section in (ACTOR, "model") for name in (
                  "mixed_precision.**", "model_dtype", "dtype")), harmless=("bf16", "fp32", "bfloat16")),
    *not_modelled("chunked prefill", f"{ROLLOUT}.enable_chunked_prefill", harmless=(False,)),
    *not_modelled("multi-turn conversations, tools and agents", f"{ROLLOUT}.multi_turn.enable",
                  f"{ROLLOUT}.over_sample_rate", f"{ROLLOUT}.skip_rollout", harmless=(False, 0)),
    *not_modelled("asynchronous generation on other GPUs", "async_training.**", "rollout.**", "resource_pool.**"),
    *not_modelled("files composed by Hydra; verl's defaults apply to keys that are not set here", "defaults",
                  "hydra.**"),
    *not_modelled("how Megatron is set up", f"{ACTOR}.megatron.override_transformer_config.**",
                  f"{ACTOR}.megatron.override_ddp_config.**", harmless=({}, False)),
    *not_modelled("overrides of the model's config.json", f"{MODEL}.override_config.**", "model.override_config.**",
                  harmless=({},)),
    *no_effect("a critic is not simulated; if one is trained, this is reported", "critic.**"),
    *no_effect("models that only score sequences have the actor's size here", "reward_model.**", f"{ROOT}.ref.**",
               "reward.**"),
    *no_effect("which data, and what is learnt", "data.**", "algorithm.**", "optim.**", f"{ACTOR}.**", "custom_*.**",
               "reward_manager.**"),
    *no_effect("sampling and logging of the rollout", f"{ROLLOUT}.**"),
    *no_effect("how the model is found and loaded", f"{MODEL}.**", "model.**", f"{ROOT}.hybrid_engine",
               f"{ROOT}.nccl_timeout"),
    *no_effect("what is logged and saved, and how processes are started", "trainer.**", "global_profiler.**",
               "ray_*.**",
               "profiler.**", "transfer_queue.**", "ray_init.**", "checkpoint.**"),
)  # fmt: skip
