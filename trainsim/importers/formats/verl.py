"""
verl's trainer configurations: the actor's update, the rollout before it, and supervised fine-tuning.
"""

from __future__ import annotations

from trainsim.importers.adapters import say_adapters
from trainsim.importers.findings import Findings
from trainsim.importers.hub import say_model
from trainsim.importers.importer import Importer, register
from trainsim.importers.interpolation import interpolated
from trainsim.importers.reader import Reader
from trainsim.importers.source import Source
from trainsim.importers.trainer import say_liger
from trainsim.importers.verl_keys import ACTOR, ENGINE, KEYS, MEGATRON, MODEL, ROLLOUT, ROOT


def sniff(source: Source) -> float:
    """Sure of the section of actor, rollout and reference; less of fine-tuning, whose words others use as well."""
    if ROOT in source.data:
        return 0.95
    return 0.85 if "partial_pretrain" in source.section("model") and source.section("trainer") else 0.0


def load(source: Source) -> Findings:
    """Facts of the machine, the model, the update and the rollout; everything else is told."""
    found = interpolated(source.document)
    reader = Reader(found.document, KEYS)
    for key, why in found.unknown.items():
        reader.ignore(key, f"its value is not in the file: {why}")
    _machine(reader)
    if reader.mapping(ROOT) is not None:
        _reinforcement(reader)
    else:
        _supervised(reader)
    return reader.findings("verl")


def _machine(reader: Reader) -> None:
    nodes, gpus = reader.whole("trainer.nnodes") or 1, reader.whole("trainer.n_gpus_per_node") or 8
    given = [name for name in ("trainer.n_gpus_per_node", "trainer.nnodes") if reader.has(name)]
    if given:
        reader.say("cluster.gpus", nodes * gpus, *given)
    else:
        reader.assume("cluster.gpus", 8, "verl's default is one node of 8 GPUs")
    if nodes > 1 and "trainer.nnodes" in given:
        reader.say("cluster.nodes", nodes, "trainer.nnodes")
    if (device := reader.text("trainer.device")) not in (None, "cuda"):
        raise reader.fail("trainer.device", f"{device} is not simulated; NVIDIA GPUs are")


def _reinforcement(reader: Reader) -> None:
    _model(reader, MODEL, "path")
    lengths = _rollout(reader)
    _batches(reader, sum(lengths))
    strategy = reader.word(f"{ACTOR}.strategy", ("fsdp", "fsdp2", "megatron")) or "fsdp"
    if strategy == "megatron":
        _megatron(reader)
    else:
        _sharding(reader, f"{ACTOR}.fsdp_config", strategy, f"{ACTOR}.strategy")
        _ulysses(reader, f"{ACTOR}.ulysses_sequence_parallel_size")
    reader.assume("training.precision", "bf16", "verl computes in bf16")
    reader.assume("training.optimizer", "adamw", "verl's optimizer is torch.optim.AdamW")
    _scored(reader)
    for key in ("entropy_from_logits_with_chunking", "entropy_checkpointing"):
        if reader.flag(f"{ACTOR}.{key}"):
            reader.warn(f"{ACTOR}.{key}", "not modelled: the entropy of the logits in parts, or made again")


def _supervised(reader: Reader) -> None:
    _model(reader, "model", "partial_pretrain")
    for name, ours in (("data.train_batch_size", "global_batch"), ("data.max_length", "sequence_length")):
        reader.say(f"training.{ours}", reader.whole(name), name)
    key = next((k for k in ("data.micro_batch_size_per_gpu", "data.micro_batch_size") if reader.has(k)), "")
    if key:
        reader.say("training.micro_batch", reader.whole(key), key)
    strategy = reader.word("model.strategy", ("fsdp", "fsdp2")) or "fsdp"
    _sharding(reader, "model.fsdp_config", strategy, "model.strategy")
    _ulysses(reader, "ulysses_sequence_parallel_size")
    reader.assume("training.precision", "bf16", "verl computes in bf16")
    reader.assume("training.optimizer", "adamw", "verl's optimizer is torch.optim.AdamW")


def _model(reader: Reader, section: str, name: str) -> None:
    say_model(reader, f"{section}.{name}")
    if reader.whole(f"{section}.lora_rank", low=0):
        say_adapters(
            reader, f"{section}.lora_rank", f"{section}.target_modules", usual=None, whose="verl", everything=True
        )
    recomputed = reader.flag(key := f"{section}.enable_gradient_checkpointing")
    if recomputed is not None:
        reader.say("training.recompute", "full" if recomputed else "none", key)
    else:
        reader.assume("training.recompute", "full", "verl's default of enable_gradient_checkpointing is true")
    if reader.flag(key := f"{section}.enable_activation_offload"):
        reader.say("training.activation_offload", "cpu", key)
    if reader.flag(key := f"{section}.use_liger"):
        say_liger(reader, key)
    if reader.flag(key := f"{section}.use_fused_kernels"):
        reader.say("training.cross_entropy", "fused_linear", key)
    padded = f"{section}.use_remove_padding" if section != "model" else "use_remove_padding"
    if reader.flag(padded):
        reader.leave_open(
            padded, "training.documents", "sequences are not padded; all are taken to be as long as they may be"
        )


def _rollout(reader: Reader) -> tuple[int, int]:
    """Say what is generated; the tokens of prompts and responses."""
    lengths = []
    for name, ours in (("max_prompt_length", "prompt_length"), ("max_response_length", "response_length")):
        keys = [f"data.{name}", f"{ROLLOUT}.{ours}"]
        key = next((k for k in keys if reader.has(k)), "")
        lengths.append((reader.whole(key) if key else None) or 512)
        if key:
            reader.say(f"training.rollout.{ours}", lengths[-1], key)
        else:
            reader.assume(f"training.rollout.{ours}", 512, f"verl's default of data.{name}")
    for name, ours in ENGINE.items():
        if (value := reader.whole(key := f"{ROLLOUT}.{name}")) is not None:
            reader.say(f"training.rollout.{ours}", value, key)
    if not reader.has(f"{ROLLOUT}.tensor_model_parallel_size"):
        reader.assume("training.rollout.tp", 2, "verl's default of rollout.tensor_model_parallel_size")
    share = reader.number(key := f"{ROLLOUT}.gpu_memory_utilization", high=1.0)
    if share:
        reader.say("training.rollout.gpu_memory_utilization", share, key)
    else:
        reader.assume("training.rollout.gpu_memory_utilization", 0.5, "verl's default")
    for name, ours in (("enforce_eager", "enforce_eager"), ("free_cache_engine", "sleep")):
        if (flag := reader.flag(key := f"{ROLLOUT}.{name}")) is not None:
            reader.say(f"training.rollout.{ours}", flag, key)
    if reader.word(f"{ROLLOUT}.name", ("vllm", "sglang", "hf", "trtllm", "naive")) in ("hf", "naive"):
        reader.warn(f"{ROLLOUT}.name", "not modelled: generation by transformers; a paged engine is simulated")
    return lengths[0], lengths[1]


def _batches(reader: Reader, longest: int) -> None:
    """All sequences of a rollout are trained on in one update: what verl does in several is the same work."""
    prompts, each = reader.whole("data.train_batch_size") or 1024, reader.whole(f"{ROLLOUT}.n") or 1
    given = [key for key in ("data.train_batch_size", f"{ROLLOUT}.n") if reader.has(key)]
    for ours in ("training.global_batch", "training.rollout.samples"):
        if given:
            reader.say(ours, prompts * each, *given)
        else:
            reader.assume(ours, prompts * each, "verl's defaults of data.train_batch_size and rollout.n")
    mini = reader.whole(key := f"{ACTOR}.ppo_mini_batch_size") or 256
    if mini < prompts:
        words = f"not modelled: {-(-prompts // mini)} updates after a rollout; one over all its sequences is simulated"
        reader.warn(key if reader.has(key) else "data.train_batch_size", words)
    if (passes := reader.whole(key := f"{ACTOR}.ppo_epochs") or 1) > 1:
        reader.warn(key, f"not modelled: the sequences are trained on {passes} times")
    micro = reader.whole(key := f"{ACTOR}.ppo_micro_batch_size_per_gpu")
    if reader.flag(dynamic := f"{ACTOR}.use_dynamic_bsz"):
        tokens = reader.whole(limit := f"{ACTOR}.ppo_max_token_len_per_gpu") or 16384
        sources = [name for name in (dynamic, limit) if reader.has(name)]
        reader.say("training.micro_batch", max(1, tokens // longest), *sources)
    elif micro is not None:
        reader.say("training.micro_batch", micro, key)


def _sharding(reader: Reader, section: str, strategy: str, named: str) -> None:
    sources = (named,) if reader.has(named) else ()
    size = reader.whole(key := f"{section}.fsdp_size", low=-1)
    if size is not None and size > 0:
        reader.say("sharding.strategy", "hsdp", key)
        reader.say("sharding.shard_size", size, key)
    elif sources:
        reader.say("sharding.strategy", "fsdp", *sources)
    else:
        reader.assume("sharding.strategy", "fsdp", "verl's default strategy")
    reader.assume(
        "framework", f"transformers-{'fsdp2' if strategy == 'fsdp2' else 'fsdp1'}", "verl trains models of transformers"
    )
    reader.assume("sharding.units", "layers", "verl wraps each layer")
    for name in ("reshard_after_forward", "forward_prefetch"):
        if (flag := reader.flag(key := f"{section}.{name}")) is not None and (
            name == "forward_prefetch" or strategy == "fsdp2"
        ):
            reader.say(f"sharding.{name}", flag, key)
    for name in ("offload_policy", "cpu_offload", "offload_params"):
        if reader.flag(key := f"{section}.{name}"):
            reader.say("sharding.offload", {"optimizer": "cpu", "parameters": "cpu"}, key)


def _ulysses(reader: Reader, key: str) -> None:
    ranks = reader.whole(key)
    reader.say("parallel.cp", ranks, key)
    if ranks and ranks > 1:
        reader.say("parallel.context_parallel", "ulysses", key)


def _megatron(reader: Reader) -> None:
    reader.say("framework", "megatron-core", f"{ACTOR}.strategy")
    for name, ours in MEGATRON.items():
        if (value := reader.whole(key := f"{ACTOR}.megatron.{name}")) is not None:
            reader.say(ours, value, key)
    if (parallel := reader.flag(key := f"{ACTOR}.megatron.sequence_parallel")) is not None:
        reader.say("parallel.sequence_parallel", parallel, key)
    else:
        reader.assume("parallel.sequence_parallel", True, "verl's default with Megatron")
    if (sharded := reader.flag(key := f"{ACTOR}.megatron.use_distributed_optimizer")) is not None:
        reader.say("sharding.strategy", "zero1" if sharded else "ddp", key)
    else:
        reader.assume("sharding.strategy", "zero1", "verl's default of use_distributed_optimizer is true")


def _scored(reader: Reader) -> None:
    """Models that read every sequence once, and a critic that would be trained as well."""
    loss, reward = (f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward")
    reference = any([reader.flag(loss), reader.flag(reward)])
    models = 1 + int(reference) + int(bool(reader.flag("reward_model.enable")))
    sources = [key for key in (loss, reward, "reward_model.enable") if reader.has(key)]
    if sources:
        reader.say("training.rollout.scored_by", models, *sources)
    else:
        reader.assume("training.rollout.scored_by", 1, "verl works out the log-probabilities of the old policy")
    estimator = (reader.text("algorithm.adv_estimator") or "gae").casefold()
    if estimator == "gae" and reader.flag("critic.enable") is not False:
        key = "algorithm.adv_estimator" if reader.has("algorithm.adv_estimator") else ROOT
        reader.warn(key, "not modelled: gae trains a critic as well, as large as the actor")
    elif reader.has("algorithm.adv_estimator"):
        reader.use("algorithm.adv_estimator", "no critic is trained")


register(
    Importer(
        name="verl",
        title="verl's trainer configuration",
        about="The YAML of verl's `main_ppo` (with `actor_rollout_ref`) and of its `fsdp_sft_trainer`.",
        leaves_open="The kind of machine, and how long sequences are on average.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "A step is a rollout, the scoring, and one update over all its sequences ([rollouts](../rollout.md)). "
            "Several updates after a rollout, and a critic, are reported and not simulated.",
            "`${...}` is resolved where the file allows it.",
        ),
    )
)
