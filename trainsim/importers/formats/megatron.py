"""
Megatron-LM: scripts that start it, files and texts with its arguments.
"""

from __future__ import annotations

import re

from trainsim.importers.findings import Findings
from trainsim.importers.formats.megatron_arguments import PATHS, SECTION, Argued, Arguments, of_mapping, of_script
from trainsim.importers.formats.megatron_deepspeed import configuration
from trainsim.importers.formats.megatron_framework import framework
from trainsim.importers.formats.megatron_keys import KEYS
from trainsim.importers.formats.megatron_model import model
from trainsim.importers.formats.megatron_parallel import Degrees, check_groups, machine, parallel
from trainsim.importers.formats.megatron_training import training
from trainsim.importers.importer import Importer, register
from trainsim.importers.shell import read_script
from trainsim.importers.source import Source
from trainsim.importers.tables import table

MARKS = frozenset(
    [
        *("--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length", "--max-position-embeddings"),
        *("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--num-layers-per-virtual-pipeline-stage"),
        *(
            "--micro-batch-size",
            "--global-batch-size",
            "--activations-checkpoint-method",
            "--use-distributed-optimizer",
        ),
        "--make-vocab-size-divisible-by",
    ]
)
"""Arguments by which Megatron-LM is recognised."""
DATA = (".json", ".yaml", ".yml", ".toml")
DEEPSPEED = ("deepspeed", "deepspeed_config", "zero-stage", "deepspeed-activation-checkpointing", "pp-partition-method")
SHOWING = (
    *("deepspeed", "use-mcore-models", "use-legacy-models", "transformer-impl", "DDP-impl"),
    *("cross-entropy-loss-fusion", "cross-entropy-fusion-impl"),
)
"""Arguments that say whose kernels run, and nothing else."""
MODERN = (
    *("use-mcore-models", "transformer-impl", "attention-backend", "overlap-grad-reduce", "overlap-param-gather"),
    *("context-parallel-size", "cp-comm-type", "multi-latent-attention", "expert-model-parallel-size", "num-experts"),
    *("num-virtual-stages-per-pipeline-rank", "pipeline-model-parallel-layout", "fp8-format", "tp-comm-overlap"),
    *(
        "cross-entropy-loss-fusion",
        "ckpt-format",
        "recompute-modules",
        "manual-gc",
        "use-megatron-fsdp",
        "use-torch-fsdp2",
    ),
    *(
        "decoder-first-pipeline-num-layers",
        "decoder-last-pipeline-num-layers",
        "group-query-attention",
        "num-query-groups",
    ),
)
"""Arguments that only Megatron-Core has."""


def sniff(source: Source) -> float:
    """Sure where several of its arguments stand, in a file of its tests, a script or a text."""
    if source.suffix in DATA or source.text.lstrip()[:1] == "{":
        held = source.section(SECTION) or source.data
        names = {str(key).replace("_", "-") for key in held}
        spelled = {name if name.startswith("--") else f"--{name}" for name in names}
        marks = len(spelled & MARKS)
        return 0.95 if source.section(SECTION) and marks else 0.8 if marks > 4 and not _sections(source) else 0.0
    found = set(re.findall(r"--[a-z][a-z-]+", source.text)) & MARKS
    return 0.9 if len(found) > 2 else 0.5 if found else 0.0


def _sections(source: Source) -> bool:
    """Whether other sections stand there than lists of names: it is a file of another tool then."""
    return any(isinstance(value, dict) for value in source.data.values())


def load(source: Source) -> Findings:
    """The model, the degrees, the machine and how a step runs."""
    if source.suffix in DATA or source.text.lstrip()[:1] == "{":
        argued = of_mapping(source.document)
    else:
        argued = of_script(read_script(source.text, shown=source.shown, folder=source.folder), source.shown)
    return said(argued)


def said(argued: Argued) -> Findings:
    """What arguments say."""
    args = Arguments(argued)
    for name, shown in argued.unknown.items():
        if name in PATHS:
            continue
        known = next((key.words for key in KEYS if key.name == name), "")
        way = f"; --set {known.split()[0].rstrip(':,')}=..." if known and "." in known.split()[0] else ""
        args.warn(name, f"{shown} is known to the job only{way}")
    if kind := table("megatron")["programs"].get(argued.program):
        raise args.fail("--num-layers", f"{argued.program} trains {kind}, which is not simulated")
    for name in args.given("hybrid-override-pattern", "mamba-state-dim", "is-hybrid-model"):
        raise args.fail(name, "state-space layers are not simulated")
    gpus = machine(args)
    layers = model(args)
    degrees = parallel(args, layers)
    deepspeed = bool(args.given(*DEEPSPEED))
    _framework(args, degrees, deepspeed=deepspeed)
    training(args, degrees, deepspeed=deepspeed)
    check_groups(args, degrees, gpus)
    configuration(args)
    _environment(args, degrees)
    return args.told()


def _framework(args: Arguments, degrees: Degrees, *, deepspeed: bool) -> None:
    """Say whose kernels and habits hold, and why."""
    name, reason = _profile(args, deepspeed=deepspeed)
    for key in args.given(*SHOWING):
        args.use(key, f"framework = {name}")
    framework(args, degrees, name, reason)


def _profile(args: Arguments, *, deepspeed: bool) -> tuple[str, str]:
    blocks = args.raw(_environment_key(args, "CUDA_LAUNCH_BLOCKING")) in (1, "1", True)
    if deepspeed and blocks:
        return "megatron-deepspeed-2022-launch-blocking", "arguments of DeepSpeed, and CUDA_LAUNCH_BLOCKING=1"
    if deepspeed:
        return "megatron-deepspeed-2022", f"{args.given(*DEEPSPEED)[0]} is one of Megatron-DeepSpeed"
    if args.on("use-megatron-fsdp") or args.on("use-custom-fsdp"):
        return "megatron-fsdp", "--use-megatron-fsdp"
    fused = args.name("cross-entropy-fusion-impl") == "te" and args.on("cross-entropy-loss-fusion")
    if fused:
        return "megatron-core-fused-loss", "--cross-entropy-fusion-impl te"
    if args.name("transformer-impl") == "local" or args.on("use-legacy-models"):
        return "megatron-2022", "layers of Megatron-LM's own, without Transformer Engine"
    modern = args.given(*MODERN)
    if modern:
        return "megatron-core", f"{modern[0].rpartition('.')[2]} is one of Megatron-Core"
    if args.given("sequence-parallel", "recompute-granularity", "recompute-activations", "use-distributed-optimizer"):
        return "megatron-2022", "sequence parallelism or recomputation of 2022, and nothing later"
    old = args.given("activations-checkpoint-method", "DDP-impl", "num-layers-per-virtual-pipeline-stage",
                     "checkpoint-activations")  # fmt: skip
    if old:
        return "megatron-2021", f"{old[0].rpartition('.')[2]} of 2021, and nothing later"
    if args.given("model-parallel-size"):
        return "megatron-2020", "--model-parallel-size of 2020"
    return "megatron-core", "nothing says how old Megatron-LM is"


def _environment_key(args: Arguments, name: str) -> str:
    return f"ENV_VARS.{name}" if args.argued.section else f"environment.{name}"


def _environment(args: Arguments, degrees: Degrees) -> None:
    """Tell what a variable does to overlaps."""
    key = _environment_key(args, "CUDA_DEVICE_MAX_CONNECTIONS")
    if args.has(_environment_key(args, "CUDA_LAUNCH_BLOCKING")):
        args.use(_environment_key(args, "CUDA_LAUNCH_BLOCKING"), "framework: a profile whose launches block")
    value = args.raw(key)
    registered = _environment_key(args, "NCCL_NVLS_ENABLE")
    if str(args.raw(registered)) == "0":
        args.say("cluster.nvls", False, registered)
    if value is None:
        return
    fsdp = args.on("use-megatron-fsdp") or args.on("use-torch-fsdp2")
    one = str(value) == "1"
    if one and fsdp:
        args.warn(key, "not modelled: one queue of launches hinders the overlap of fsdp")
    elif not one and (degrees.tp > 1 or degrees.cp > 1) and not fsdp:
        args.warn(key, "not modelled: before Blackwell tensor and context parallelism overlap with 1 only")
    else:
        args.use(key, "overlaps of tensor and context parallelism hold, as the profile has them")


register(
    Importer(
        name="megatron",
        title="Megatron-LM, Megatron-Core and Megatron-DeepSpeed",
        about="Bash scripts that start Megatron-LM, the YAML files of its functional tests (`MODEL_ARGS`), JSON files "
        "and texts with its arguments. A script is read, never run: variables, arrays, conditions, here-documents and "
        "files that it sources are followed.",
        leaves_open="The machine (cluster.topology); of YAML and JSON files the number of GPUs; the size of the "
        "vocabulary, where a tokenizer says it.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "The degree of data parallelism is never written; it follows from the GPUs.",
            "`--num-layers-per-virtual-pipeline-stage` counts layers of a chunk, "
            "`--num-virtual-stages-per-pipeline-rank` chunks of a rank.",
            "Where the batch grows, the steady step at the end is simulated.",
            "Arguments whose values only the job knows (`$1`, `$WORLD_SIZE`, `$(...)`) are reported with the key to "
            "set; a copy of the script with `set -- A B C` or `NAME=value` at its top supplies them too.",
            "Conditions that depend on such values are assumed false, and reported.",
            "Of several programs that a script starts, the one with most arguments of Megatron-LM counts.",
            "DeepSpeed's configuration (`--deepspeed_config`) is read as a further file.",
        ),
    )
)
