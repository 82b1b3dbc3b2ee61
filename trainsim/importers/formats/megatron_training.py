"""
Batches, numbers, recomputation and sharding that arguments of Megatron-LM ask for.
"""

from __future__ import annotations

import re

from trainsim.importers.formats.megatron_arguments import Arguments
from trainsim.importers.formats.megatron_deepspeed import stage
from trainsim.importers.formats.megatron_parallel import Degrees
from trainsim.importers.tables import table
from trainsim.models.fp8_recipes import RECIPES_OF
from trainsim.models.recompute_modules import recompute_modules

SHARDED = {"no_shard": "ddp", "optim": "zero1", "optim_grads": "fsdp", "optim_grads_params": "fsdp"}
"""Strategies of Megatron-FSDP."""


def training(args: Arguments, degrees: Degrees, *, deepspeed: bool) -> None:
    """Say everything about a step that is neither model nor degrees."""
    _batches(args)
    precision = _precision(args)
    _recompute(args)
    _gradients(args, precision, deepspeed=deepspeed)
    _optimizer(args, deepspeed=deepspeed)
    _sharding(args, precision, deepspeed=deepspeed)
    _kernels(args, degrees)
    _routing(args)


def _batches(args: Arguments) -> None:
    length = args.count("seq-length") or args.count("encoder-seq-length")
    args.say("training.sequence_length", length, *args.given("seq-length", "encoder-seq-length"))
    args.say("training.decoder_length", args.count("decoder-seq-length"), *args.given("decoder-seq-length"))
    args.say("training.micro_batch", args.count("micro-batch-size"), *args.given("micro-batch-size"))
    whole = args.count("global-batch-size")
    steps = " ".join(args.words("step-batch-size-schedule"))
    last = re.search(r":(\d{1,9})\s*[\"']?$", steps)
    if whole is None and steps and last:
        args.say("training.global_batch", int(last[1]), *args.given("step-batch-size-schedule"))
    elif steps:
        words = "the batch grows up to the global one: the steady step is simulated"
        args.use(args.key("step-batch-size-schedule"), words)
    args.say("training.global_batch", whole, *args.given("global-batch-size"))
    if args.words("rampup-batch-size"):
        args.use(args.key("rampup-batch-size"), "the batch grows up to the global one: the steady step is simulated")
    if whole is None and not last and args.has(args.key("micro-batch-size")):
        args.assume("training.gradient_accumulation", 1, f"{args.whose}: one micro-batch per replica")


def _precision(args: Arguments) -> str:
    """Say the numbers that layers work with; 16-bit ones, if any."""
    low = "fp16" if args.on("fp16") else "bf16" if args.on("bf16") else "fp32"
    if args.on("fp16") and args.on("bf16"):
        raise args.fail(args.key("bf16"), "goes against --fp16; leave one of them out")
    recipes = table("megatron")["fp8_recipes"]
    recipe = args.choice("fp8-recipe", recipes)
    if args.name("fp8-format") is not None:
        args.say("training.precision", recipes[recipe or "delayed"], *args.given("fp8-format", "fp8-recipe"))
        if recipe in RECIPES_OF["fp8"]:
            args.say("training.fp8_recipe", recipe, *args.given("fp8-recipe"))
    elif args.name("fp4-format") is not None:
        args.say("training.precision", "nvfp4", *args.given("fp4-format"))
    elif args.given("fp16", "bf16") and low != "fp32":
        args.say("training.precision", low, *args.given(low))
    else:
        args.assume("training.precision", "fp32", f"{args.whose}: neither --bf16 nor --fp16 is there")
    for name in args.given("fp16", "bf16"):
        args.use(name, f"numbers of {low}")
    if low == "fp16" and args.amount("loss-scale"):
        args.say("training.loss_scaling", "static", *args.given("loss-scale"))
    return low


def _gradients(args: Arguments, low: str, *, deepspeed: bool) -> None:
    """Say in what gradients are summed and sent: bf16 ones in fp32, fp16 ones as they are, unless told otherwise."""
    sent = args.choice("megatron-fsdp-grad-comm-dtype", ("fp32", "bf16", "fp16", "auto"))
    kept = args.choice("megatron-fsdp-main-grads-dtype", ("fp32", "bf16", "fp16", "auto"))
    kept = kept or args.choice("main-grads-dtype", ("fp32", "bf16"))
    if sent and sent != "auto":
        args.say("training.gradient_dtype", sent, *args.given("megatron-fsdp-grad-comm-dtype"))
    if kept and kept != "auto":
        names = args.given("megatron-fsdp-main-grads-dtype", "main-grads-dtype")
        args.say("training.accumulation_dtype", kept, *names)
        if sent or low == "fp32":
            return
        args.say("training.gradient_dtype", kept, *names)
    if kept or sent or low == "fp32":
        return
    if args.on("grad-reduce-in-bf16"):
        args.say("training.gradients", "bf16", *args.given("grad-reduce-in-bf16"))
    elif args.on("accumulate-allreduce-grads-in-fp32"):
        args.say("training.gradients", "fp32", *args.given("accumulate-allreduce-grads-in-fp32"))
    elif not deepspeed:
        args.assume("training.gradients", "fp16" if low == "fp16" else "fp32", f"{args.whose} with {low}")


def _recompute(args: Arguments) -> None:
    """Say what is recomputed, in the words of all versions."""
    grain = args.choice("recompute-granularity", ("full", "selective"))
    sources = args.given(
        *("recompute-granularity", "recompute-method", "recompute-num-layers", "recompute-modules"),
        *("recompute-activations", "moe-layer-recompute", "checkpoint-activations", "checkpoint-num-layers"),
        *("activations-checkpoint-method", "activations-checkpoint-num-layers"),
    )
    method = args.choice("recompute-method", ("uniform", "block"))
    old = args.choice("activations-checkpoint-method", ("uniform", "block"))
    layers = args.count("recompute-num-layers") or args.count("activations-checkpoint-num-layers")
    layers = layers or args.count("checkpoint-num-layers")
    modules = args.words("recompute-modules")
    if args.on("moe-layer-recompute"):
        usual = ["core_attn"] if grain == "selective" or args.on("recompute-activations") else []
        modules = [*(modules or usual), "moe"]
    if args.on("checkpoint-activations") or old:
        grain, method = "full", old or method
    elif grain is None and (args.on("recompute-activations") or args.on("moe-layer-recompute")):
        grain = "selective"
    if grain == "full" and method == "block" and layers:
        args.say("training.recompute", {"mode": "full", "layers": layers}, *sources)
    elif grain == "full":
        args.say("training.recompute", "full", *sources)
        if (layers or 1) > 1:
            key = args.given("recompute-num-layers", "activations-checkpoint-num-layers", "checkpoint-num-layers")[0]
            args.warn(key, f"not modelled: one layer in {layers} keeps its input; here each does")
    elif grain == "selective":
        _selective(args, modules, sources)


def _selective(args: Arguments, modules: list[str], sources: list[str]) -> None:
    known = [name for name in modules if name in recompute_modules]
    for name in modules:
        if name not in recompute_modules:
            args.warn(args.key("recompute-modules"), f"not modelled: {name} is recomputed")
    if modules and known != ["core_attn"]:
        args.say("training.recompute", {"mode": "selective", "modules": list(dict.fromkeys(known))}, *sources)
    else:
        args.say("training.recompute", "selective", *sources)


def _optimizer(args: Arguments, *, deepspeed: bool) -> None:
    known = table("megatron")["optimizers"]
    name = args.choice("optimizer", known)
    if args.on("use-bnb-optimizer"):
        args.say("training.optimizer", "adam8bit", *args.given("use-bnb-optimizer"))
    elif name:
        args.say("training.optimizer", known[name], *args.given("optimizer"))
    if args.on("optimizer-cpu-offload"):
        args.say("sharding.offload.optimizer", "cpu", *args.given("optimizer-cpu-offload"))
        ratio = args.amount("optimizer-offload-fraction", high=1.0)
        if ratio and ratio < 1:
            args.say("sharding.offload.ratio", ratio, *args.given("optimizer-offload-fraction"))
    if args.on("cpu-optimizer"):
        args.say("sharding.offload.optimizer", "cpu", *args.given("cpu-optimizer"))
    device = args.choice("remote-device", ("none", "cpu", "nvme"))
    if device in ("cpu", "nvme"):
        args.say("sharding.offload.parameters", device, *args.given("remote-device"))
    layers = args.count("cpu-offloading-num-layers", low=0)
    if layers or args.on("cpu-offloading") or args.on("checkpoint-in-cpu"):
        names = args.given("cpu-offloading-num-layers", "cpu-offloading", "checkpoint-in-cpu")
        args.say("training.activation_offload", "cpu", *names)
        if layers and layers != args.count("num-layers"):
            args.warn(names[0], f"not modelled: activations of {layers} layers only go to the host; here all do")


def _sharding(args: Arguments, low: str, *, deepspeed: bool) -> None:
    """Say who shares states, and what of it overlaps."""
    if deepspeed:
        stage(args, low)
        return
    sharded = args.choice("data-parallel-sharding-strategy", SHARDED)
    own = next((name for name in ("use-megatron-fsdp", "use-custom-fsdp") if args.on(name)), None)
    if own:
        strategy = SHARDED[sharded or "no_shard"]
        args.say("sharding.strategy", strategy, *args.given(own, "data-parallel-sharding-strategy"))
        if sharded == "optim_grads":
            args.say("sharding.reshard_after_forward", False, *args.given("data-parallel-sharding-strategy"))
    elif args.on("use-torch-fsdp2"):
        strategy = "hsdp" if args.hybrid else "fsdp"
        args.say("sharding.strategy", strategy, *args.given("use-torch-fsdp2"))
        if args.on("torch-fsdp2-no-reshard-after-forward"):
            names = args.given("torch-fsdp2-no-reshard-after-forward")
            args.say("sharding.reshard_after_forward", False, *names)
    elif args.on("use-distributed-optimizer"):
        strategy = "zero1"
        args.say("sharding.strategy", strategy, *args.given("use-distributed-optimizer"))
    else:
        strategy = "ddp"
        args.assume("sharding.strategy", strategy, f"{args.whose}: --use-distributed-optimizer is not there")
    for name in args.given("use-distributed-optimizer"):
        args.use(name, f"sharding.strategy = {strategy}")
    _overlaps(args, strategy)


def _overlaps(args: Arguments, strategy: str) -> None:
    size = args.count("ddp-bucket-size")
    if strategy in ("fsdp", "hsdp"):
        for name in args.given("overlap-grad-reduce", "overlap-param-gather"):
            args.use(name, "fsdp overlaps both")
        return
    args.say("sharding.reduce_bucket", size, *args.given("ddp-bucket-size"))
    for key, name in (("overlap", "overlap-grad-reduce"), ("parameter_gather_overlap", "overlap-param-gather")):
        if key == "parameter_gather_overlap" and strategy != "zero1":
            for source in args.given(name):
                args.ignore(source, "without effect: nothing is gathered after the update")
        elif args.on(name):
            args.say(f"sharding.{key}", True, *args.given(name))
        else:
            args.assume(f"sharding.{key}", False, args.whose)
    instances = args.count("num-distributed-optimizer-instances")
    if instances and instances > 1:
        args.say("sharding.instances", instances, *args.given("num-distributed-optimizer-instances"))


def _kernels(args: Arguments, degrees: Degrees) -> None:
    """Say attention's kernel, the overlap of tensor parallelism, and graphs."""
    known = table("megatron")["attention"]
    backend = args.choice("attention-backend", (*known, "auto"))
    modern = args.name("transformer-impl") != "local" and not args.on("use-legacy-models")
    if backend in known:
        args.say("training.attention", known[backend], *args.given("attention-backend"))
    elif backend:
        args.use(args.key("attention-backend"), "the profile's kernel")
    elif args.on("use-flash-attn-v1"):
        args.say("training.attention", "flash1", *args.given("use-flash-attn-v1"))
    elif args.on("use-flash-attn-v2") or (args.on("use-flash-attn") and not _transformer_engine(args, modern)):
        args.say("training.attention", "flash2", *args.given("use-flash-attn-v2", "use-flash-attn"))
    elif args.on("use-flash-attn"):
        args.use(args.key("use-flash-attn"), "a fused kernel: Transformer Engine chooses, here the profile does")
    if args.on("tp-comm-overlap"):
        if degrees.tp > 1 and args.on("sequence-parallel"):
            args.say("training.tp_overlap", "userbuffers", *args.given("tp-comm-overlap"))
        else:
            reason = "Megatron-LM requires --sequence-parallel with it" if degrees.tp > 1 else "tp is 1"
            args.ignore(args.key("tp-comm-overlap"), f"without effect: {reason}")
    impl = args.name("cuda-graph-impl")
    graphs = args.given("enable-cuda-graph", "external-cuda-graph", "cuda-graph-impl")
    if args.on("enable-cuda-graph") or args.on("external-cuda-graph") or impl not in (None, "none"):
        args.say("training.cuda_graphs", True, *graphs)
    elif graphs:
        args.ignore(graphs[0], "off")


def _transformer_engine(args: Arguments, modern: bool) -> bool:
    return modern and bool(args.given("use-mcore-models", "transformer-impl"))


def _routing(args: Arguments) -> None:
    """Say how tokens get to experts."""
    if not any(int(n) > 1 for n in args.words("num-experts") if n.isdecimal() and len(n) < 9):
        return
    kind = args.choice("moe-token-dispatcher-type", ("allgather", "alltoall", "flex", "alltoall_seq"))
    backend = args.choice("moe-flex-dispatcher-backend", ("deepep", "hybridep"))
    sources = args.given("moe-token-dispatcher-type", "moe-flex-dispatcher-backend", "moe-enable-deepep")
    if kind == "flex":
        args.say("training.moe.dispatcher", backend or "deepep", *sources)
    elif kind:
        args.say("training.moe.dispatcher", kind.removesuffix("_seq"), *sources)
    elif args.given("expert-model-parallel-size"):
        args.assume("training.moe.dispatcher", "allgather", args.whose)
    factor = args.amount("moe-expert-capacity-factor")
    args.say("training.moe.capacity_factor", factor or None, *args.given("moe-expert-capacity-factor"))
    if args.on("moe-pad-expert-input-to-capacity") and factor:
        args.say("training.moe.pad_to_capacity", True, *args.given("moe-pad-expert-input-to-capacity"))
    if args.on("moe-shared-expert-overlap"):
        args.say("training.moe.shared_overlap", True, *args.given("moe-shared-expert-overlap"))
