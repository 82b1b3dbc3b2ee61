"""
Hugging Face accelerate's configuration, as ``accelerate config`` writes it: processes, precision and who shares what.
"""

from __future__ import annotations

from trainsim.importers.findings import Findings
from trainsim.importers.fsdp import Wrapping, fsdp_keys, read_fsdp
from trainsim.importers.importer import Importer, no_effect, not_modelled, read, register
from trainsim.importers.reader import Reader
from trainsim.importers.source import Source

TYPES = ("NO", "MULTI_GPU", "DEEPSPEED", "FSDP", "MEGATRON_LM", "TP", "MULTI_CPU", "MULTI_XPU", "MULTI_NPU",
         "MULTI_MLU", "MULTI_MUSA", "MULTI_HPU", "MULTI_SDAA", "MULTI_NEURON", "XLA", "TPU")  # fmt: skip
GPUS = TYPES[:6]
PRECISIONS = {"no": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}
PARALLEL = "parallelism_config.parallelism_config_"
ZERO = "deepspeed_config."
MEGATRON = "megatron_lm_config.megatron_lm_"


def sniff(source: Source) -> float:
    """Sure of the kind of distribution beside processes or a plugin's section."""
    if "distributed_type" not in source.data:
        return 0.0
    others = ("num_processes", "num_machines", "compute_environment", "mixed_precision", "machine_rank", "fsdp_config",
              "deepspeed_config", "megatron_lm_config")  # fmt: skip
    return 0.95 if source.has(*others) else 0.5


def load(source: Source) -> Findings:
    """Facts of the machine, the precision and the plugin; everything else is told."""
    reader = Reader(source.document, KEYS)
    kind = reader.word("distributed_type", TYPES) or "NO"
    if kind not in GPUS or reader.flag("use_cpu"):
        key = "distributed_type" if kind not in GPUS else "use_cpu"
        raise reader.fail(key, f"{kind if kind not in GPUS else 'CPUs'} are not simulated; NVIDIA GPUs are")
    reader.use("distributed_type", f"sharding: {kind}")
    _machine(reader, kind)
    _precision(reader, kind)
    _compiled(reader)
    {"DEEPSPEED": _deepspeed, "FSDP": _fsdp, "MEGATRON_LM": _megatron}.get(kind, _replicas)(reader)
    _degrees(reader)
    return reader.findings("accelerate")


def _machine(reader: Reader, kind: str) -> None:
    gpus, machines = reader.whole("num_processes", low=-1), reader.whole("num_machines")
    ids = reader.raw("gpu_ids")
    if isinstance(ids, str | int) and str(ids) != "all" and (gpus is None or gpus < 1) and (machines or 1) == 1:
        gpus = len(str(ids).split(","))
        reader.say("cluster.gpus", gpus, "gpu_ids")
    elif gpus is not None and gpus > 0:
        reader.say("cluster.gpus", gpus, "num_processes")
    elif kind == "NO":
        reader.assume("cluster.gpus", 1, "accelerate's distributed_type NO is one process")
    elif gpus is not None:
        reader.leave_open("num_processes", "cluster.gpus", "the launcher decides")
    if machines and machines > 1:
        reader.say("cluster.nodes", machines, "num_machines")
        if gpus and gpus > 0 and gpus % machines:
            raise reader.fail("num_processes", f"{gpus} processes are not divisible by num_machines={machines}")
    elif machines:
        reader.ignore("num_machines", "one: a part of a node, or all of it")


def _precision(reader: Reader, kind: str) -> None:
    """``no`` is what accelerate takes by itself, so it yields to the script's own arguments."""
    raw = reader.raw("mixed_precision")
    word = "no" if raw is False else reader.word("mixed_precision", PRECISIONS) if raw is not None else None
    if word is None and reader.flag("fp16"):
        reader.say("training.precision", "fp16", "fp16")
    elif word in (None, "no") and not (kind == "DEEPSPEED" and reader.has(f"{ZERO}deepspeed_config_file")):
        reader.assume("training.precision", "fp32", "mixed_precision: no, which is accelerate's default")
    elif word == "no":
        reader.ignore("mixed_precision", "DeepSpeed's configuration decides")
    elif word:
        reader.say("training.precision", PRECISIONS[word], "mixed_precision")
    if word == "no" and not reader.noted("mixed_precision"):
        reader.use("mixed_precision", "training.precision = fp32, unless the script's own arguments say otherwise")


def _compiled(reader: Reader) -> None:
    for key in ("dynamo_config.dynamo_backend", "dynamo_backend"):
        word = reader.raw(key)
        backend = "" if word is False else (reader.text(key) or "").upper()
        if backend == "INDUCTOR":
            reader.say("framework.compiled", True, key)
        elif backend in ("NO", "EAGER", "AOT_EAGER") or word is False:
            reader.ignore(key, "nothing is fused")
        elif backend:
            reader.warn(key, f"not modelled: the compiler {backend}; INDUCTOR is framework.compiled")


def _deepspeed(reader: Reader) -> None:
    if reader.has(f"{ZERO}deepspeed_config_file"):
        reader.refer(f"{ZERO}deepspeed_config_file", "ZeRO's stage, buckets, offload and precision")
        reader.use(f"{ZERO}deepspeed_config_file", "the configuration of DeepSpeed")
        for name in ("zero_stage", "offload_optimizer_device", "offload_param_device", "gradient_accumulation_steps"):
            if reader.has(f"{ZERO}{name}"):
                reader.ignore(f"{ZERO}{name}", "the file decides; accelerate refuses both")
    else:
        _zero(reader)
    reader.assume("framework", "transformers-deepspeed", "accelerate runs models of transformers")


def _zero(reader: Reader) -> None:
    stage = reader.whole(f"{ZERO}zero_stage", low=0)
    if stage is not None and stage > 3:
        raise reader.fail(f"{ZERO}zero_stage", f"there are stages 0 to 3, found {stage}")
    if stage is None:
        reader.assume("sharding.strategy", "zero2", "accelerate's default of zero_stage is 2")
    else:
        reader.say("sharding.strategy", ("ddp", "zero1", "zero2", "zero3")[stage], f"{ZERO}zero_stage")
    for name, ours, least in (("optimizer", "optimizer", 1), ("param", "parameters", 3)):
        key = f"{ZERO}offload_{name}_device"
        device = reader.word(key, ("none", "cpu", "nvme"))
        if device == "none":
            reader.ignore(key, "none: nothing is offloaded")
        elif device and (2 if stage is None else stage) < least:
            reader.warn(key, f"DeepSpeed offloads that from stage {least} on: it stays on the GPU")
        elif device:
            reader.say(f"sharding.offload.{ours}", device, key)
    steps = reader.whole(f"{ZERO}gradient_accumulation_steps", besides=("auto",))
    if steps == "auto":
        reader.leave_open(f"{ZERO}gradient_accumulation_steps", "training.gradient_accumulation", "the script decides")
    else:
        reader.say("training.gradient_accumulation", steps, f"{ZERO}gradient_accumulation_steps")


def _fsdp(reader: Reader) -> None:
    replicate, shard = (reader.whole(f"{PARALLEL}dp_{name}_size") for name in ("replicate", "shard"))
    cp = reader.whole(f"{PARALLEL}cp_size") or 1
    hybrid = shard * cp if shard and replicate and replicate > 1 and shard > 1 else 0
    strategy = "NO_SHARD" if replicate and replicate > 1 and shard == 1 else ""
    version = read_fsdp(reader, "fsdp_config", Wrapping(shard=hybrid, strategy=strategy))
    reader.assume("framework", f"transformers-fsdp{version}", "accelerate runs models of transformers")
    for word in ("bf16", "fp16"):
        if reader.peek("mixed_precision") == word:
            reader.assume("training.gradient_dtype", word, "accelerate reduces gradients in the compute dtype")


def _megatron(reader: Reader) -> None:
    reader.say("parallel.tp", reader.whole(f"{MEGATRON}tp_degree"), f"{MEGATRON}tp_degree")
    reader.say("parallel.pp", reader.whole(f"{MEGATRON}pp_degree"), f"{MEGATRON}pp_degree")
    key = f"{MEGATRON}num_micro_batches"
    reader.say("training.gradient_accumulation", reader.whole(key), key)
    key = f"{MEGATRON}sequence_parallelism"
    reader.say("parallel.sequence_parallel", reader.flag(key), key)
    if reader.flag(key := f"{MEGATRON}recompute_activations"):
        reader.say("training.recompute", "selective", key)
    if (sharded := reader.flag(key := f"{MEGATRON}use_distributed_optimizer")) is not None:
        reader.say("sharding.strategy", "zero1" if sharded else "ddp", key)
    reader.assume("framework", "megatron-core", "accelerate's plugin runs Megatron-LM")


def _replicas(reader: Reader) -> None:
    reader.assume("sharding.strategy", "ddp", "accelerate wraps a model in DistributedDataParallel")
    reader.assume("framework", "transformers-ddp", "accelerate runs models of transformers")


def _degrees(reader: Reader) -> None:
    replicate, shard = (reader.whole(f"{PARALLEL}dp_{name}_size") for name in ("replicate", "shard"))
    if replicate or shard:
        keys = [f"{PARALLEL}dp_{name}_size" for name in ("replicate", "shard")]
        reader.say("parallel.dp", (replicate or 1) * (shard or 1), *[key for key in keys if reader.has(key)])
    for key in (f"{PARALLEL}tp_size", "tp_config.tp_size"):
        reader.say("parallel.tp", reader.whole(key), key)
    cp, sp = reader.whole(f"{PARALLEL}cp_size"), reader.whole(f"{PARALLEL}sp_size")
    if (cp or 1) > 1 and (sp or 1) > 1:
        raise reader.fail(f"{PARALLEL}sp_size", f"cp_size is {cp} as well; sequences are cut by one of the two")
    if cp and (cp > 1 or not sp):
        reader.say("parallel.cp", cp, f"{PARALLEL}cp_size")
        rotates = reader.word(f"{PARALLEL}cp_comm_strategy", ("allgather", "alltoall"))
        if cp > 1 and rotates:
            ours = {"allgather": "all_gather", "alltoall": "ring"}[rotates]
            reader.say("parallel.context_parallel", ours, f"{PARALLEL}cp_comm_strategy")
        elif cp > 1:
            reader.assume("parallel.context_parallel", "all_gather", "accelerate's cp_comm_strategy is allgather")
    elif sp:
        reader.say("parallel.cp", sp, f"{PARALLEL}sp_size")
        if sp > 1:
            reader.say("parallel.context_parallel", "ulysses", f"{PARALLEL}sp_size")


KEYS = (
    read("distributed_type", "sharding.strategy and framework"),
    read("num_processes", "cluster.gpus"),
    read("num_machines", "cluster.nodes, above 1"),
    read("gpu_ids", "cluster.gpus, where num_processes does not say"),
    read("mixed_precision", "training.precision"),
    read("fp16", "training.precision (old)"),
    read("use_cpu", "true is refused"),
    read("dynamo_config.dynamo_backend", "framework.compiled: INDUCTOR"),
    read("dynamo_backend", "framework.compiled: INDUCTOR (old)"),
    *fsdp_keys("fsdp_config"),
    read(f"{ZERO}deepspeed_config_file", "the file is read too"),
    read(f"{ZERO}zero_stage", "sharding.strategy"),
    read(f"{ZERO}offload_optimizer_device", "sharding.offload.optimizer"),
    read(f"{ZERO}offload_param_device", "sharding.offload.parameters"),
    read(f"{ZERO}gradient_accumulation_steps", "training.gradient_accumulation"),
    read(f"{MEGATRON}tp_degree", "parallel.tp"),
    read(f"{MEGATRON}pp_degree", "parallel.pp"),
    read(f"{MEGATRON}num_micro_batches", "training.gradient_accumulation"),
    read(f"{MEGATRON}sequence_parallelism", "parallel.sequence_parallel"),
    read(f"{MEGATRON}recompute_activations", "training.recompute: selective"),
    read(f"{MEGATRON}use_distributed_optimizer", "sharding.strategy: zero1 or ddp"),
    read(f"{PARALLEL}dp_replicate_size", "parallel.dp and sharding.strategy: replicas of groups that share"),
    read(f"{PARALLEL}dp_shard_size", "parallel.dp and sharding.shard_size"),
    read(f"{PARALLEL}tp_size", "parallel.tp"),
    read("tp_config.tp_size", "parallel.tp (old)"),
    read(f"{PARALLEL}cp_size", "parallel.cp"),
    read(f"{PARALLEL}cp_comm_strategy", "parallel.context_parallel: all_gather or ring"),
    read(f"{PARALLEL}sp_size", "parallel.cp, by Ulysses"),
    *no_effect("where and how processes are started", "compute_environment", "debug", "machine_rank", "rdzv_backend",
               "main_process_ip", "main_process_port", "main_training_function", "same_network", "enable_cpu_affinity",
               "command_file", "commands", "num_cpu_threads_per_process", "log_dir", "rdzv_conf", "max_restarts",
               f"{ZERO}deepspeed_hostfile", f"{ZERO}deepspeed_multinode_launcher", f"{ZERO}deepspeed_exclusion_filter",
               f"{ZERO}deepspeed_inclusion_filter", "mpirun_config.**", "monitor_interval"),
    *no_effect("of other machines", "downcast_bf16", "tpu_*", "ipex_config.**"),
    *no_effect("how a model is loaded and saved, and where files lie", f"{ZERO}zero3_init_flag",
               f"{ZERO}zero3_save_16bit_model", f"{ZERO}offload_optimizer_nvme_path", f"{ZERO}offload_param_nvme_path"),
    *no_effect("a factor that scales gradients", f"{ZERO}gradient_clipping", f"{MEGATRON}gradient_clipping"),
    *no_effect("who cuts sequences; the messages are the same", f"{PARALLEL}sp_backend", f"{PARALLEL}sp_seq_length",
               f"{PARALLEL}sp_seq_length_is_variable", f"{PARALLEL}sp_attn_implementation"),
    *no_effect("which experts' class is gathered as one", f"{ZERO}deepspeed_moe_layer_cls_names"),
    *not_modelled("how the model is compiled", "dynamo_config.**", harmless=(False, "default")),
    *not_modelled("fp8 as other software than training.precision: fp8 does it", "fp8_config.**"),
    *not_modelled("parameters of the parallel plugin", f"{PARALLEL}*", "parallelism_config.*", harmless=(1,)),
    *not_modelled("another launcher", "ec2_instance_type", "additional_args.**", "sagemaker_*", "image_uri"),
)  # fmt: skip

register(
    Importer(
        name="accelerate",
        title="Hugging Face accelerate's configuration",
        about="The YAML (or JSON) that `accelerate config` writes and `accelerate launch --config_file` takes.",
        leaves_open="The model, the kind of machine, sequence lengths and batches: the script's.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "`num_processes` is the number of all GPUs; a part of a node is allowed.",
            "Enumerations stand as words or as numbers from 1.",
            "Without `fsdp_auto_wrap_policy` the whole model is one unit; without `fsdp_backward_prefetch` nothing is "
            "gathered ahead.",
            "The number of GPUs has to be `dp_replicate_size` x `dp_shard_size` x `tp_size` x `cp_size`; only the "
            "shard group gathers parameters.",
        ),
    )
)
