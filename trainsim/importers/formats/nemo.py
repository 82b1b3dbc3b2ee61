"""
NeMo's YAML: the configuration of NeMo 1 (``trainer``, ``model``) and that of Megatron-Bridge (``model``, ``train``,
``ddp``, ...). Both say what arguments of Megatron-LM say, in words of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainsim.documents.document import Document
from trainsim.importers.findings import Findings
from trainsim.importers.formats.megatron_arguments import Argued, Arguments
from trainsim.importers.formats.megatron_framework import framework
from trainsim.importers.formats.megatron_model import model
from trainsim.importers.formats.megatron_parallel import Degrees, parallel
from trainsim.importers.formats.megatron_training import training
from trainsim.importers.formats.nemo_keys import KEYS
from trainsim.importers.importer import Effect, Importer, register
from trainsim.importers.interpolation import interpolated
from trainsim.importers.matching import match
from trainsim.importers.reader import Reader
from trainsim.importers.source import Source
from trainsim.importers.tables import table

SIZES = ("num_layers", "hidden_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "micro_batch_size",
         "seq_length", "encoder_seq_length")  # fmt: skip
BRIDGE = ("train", "ddp", "dist", "comm_overlap", "mixed_precision", "scheduler", "rng", "dataset")
LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
LAYOUT, CHUNKS = "model.pipeline_model_parallel_layout", "model.virtual_pipeline_model_parallel_size"
SHOWING = ("use-mcore-models", "transformer-impl", "cross-entropy-loss-fusion", "cross-entropy-fusion-impl")
"""Arguments that say whose kernels run, and nothing else."""
SWITCHES = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
WORDS = {
    "model.activation": ("gelu", "geglu", "fast-geglu", "swiglu", "fast-swiglu", "squared-relu"),
    "model.optim.grad_sync_dtype": ("bf16", "fp16", "fp32"),
}
"""Values of NeMo 1 that are known."""
PRECISIONS = ("16", "16-mixed", "bf16", "bf16-mixed", "bf16-true", "32", "32-true", "fp32")
MEBI = 1 << 20


class Recipe(Arguments):
    """Arguments of Megatron-LM, read from the keys of NeMo's YAML that say the same."""

    whose = "NeMo's default"

    def __init__(self, document: Document, kind: str):
        self.argued = Argued(document)
        entries: Mapping[str, Any] = table("nemo")[kind]
        rules: dict[str, dict[str, Any]] = {
            name: {"key": entry} if isinstance(entry, str) else entry for name, entry in entries.items()
        }
        plain = {name for name, rule in rules.items() if len(rule) == 1}
        self._spelled = {f"--{n}": r["key"] if n in plain else f"{r['key']}#{n}" for n, r in rules.items()}
        self._rules = {f"{rule['key']}#{name}": rule for name, rule in rules.items() if name not in plain}
        Reader.__init__(self, document, KEYS)

    def own(self, key: str) -> str:
        """The key of the file that *key* was made of."""
        return super().own(key.partition("#")[0])

    def raw(self, key: str) -> Any:
        """The value at *key*, in the words of Megatron-LM."""
        return self._made(key, super().raw(key))

    def peek(self, key: str) -> Any:
        """The value at *key*, in the words of Megatron-LM; does not mark it."""
        return self._made(key, super().peek(key))

    def _made(self, key: str, value: Any) -> Any:
        if key == LAYOUT and isinstance(value, list):
            stages = [stage if isinstance(stage, list) else [stage] for stage in value]
            return "|".join("".join(LETTERS.get(str(part), "?") for part in stage) for stage in stages)
        rule = self._rules.get(key)
        if rule is None or value is None:
            return value
        word = str(value).casefold()
        if isinstance(value, dict | list) or ("not" in rule and word not in SWITCHES):
            return value
        if "is" in rule:
            return word in rule["is"]
        if "not" in rule:
            return not SWITCHES[word]
        return True if "set" in rule else rule["as"].get(word, value)

    def _valued(self, name: str) -> str:
        return self.key(name)


def sniff(source: Source) -> float:
    """Sure where the sections of one of both stand, with sizes of Megatron-LM below ``model``."""
    section = source.section("model")
    sizes = sum(key in section for key in SIZES)
    if "ConfigContainer" in str(source.data.get("_target_", "")):
        return 0.95
    if "trainer" in source.data and sizes > 2:
        return 0.95
    others = source.has(*BRIDGE)
    batches = {"global_batch_size", "micro_batch_size"} & set(source.section("train"))
    if others > 1 and (sizes > 1 or batches):
        return 0.9
    return 0.4 if sizes > 3 and not source.section("training") else 0.0


def load(source: Source) -> Findings:
    """The model, the degrees, the machine and how a step runs."""
    found = interpolated(source.document)
    data = found.document.data
    kind = "bridge" if source.has(*BRIDGE) or "_target_" in data else "nemo"
    args = Recipe(found.document, kind)
    for key, words in found.unknown.items():
        known = match(key, KEYS)
        if known is not None and known.effect is Effect.NONE:
            args.ignore(key, known.words)
        else:
            args.warn(key, f"its value is not known: {words}")
    (_bridge if kind == "bridge" else _nemo)(args)
    return args.findings("nemo")


def _nemo(args: Recipe) -> None:
    """NeMo 1."""
    each, nodes = args.whole("trainer.devices", low=-1), args.whole("trainer.num_nodes")
    if nodes and each and each > 0:
        args.say("cluster.gpus", nodes * each, "trainer.num_nodes", "trainer.devices")
    elif each:
        args.use("trainer.devices", "GPUs of a node; how many nodes is left open: --set cluster.gpus=N")
    _check_words(args)
    args.hybrid = args.word("model.fsdp_sharding_strategy", ("full", "hybrid", "grad")) == "hybrid"
    degrees = _megatron(args, "nemo", "NeMo 1, whose YAML this is")
    if degrees.tp > 1 and not args.on("tp-comm-overlap"):
        args.say("training.tp_overlap", "wgrad", *args.given("tp-comm-overlap"), weak=True)
    if args.has("model.use_flash_attention") and not args.on("use-flash-attn"):
        args.say("training.attention", "eager", *args.given("use-flash-attn"))
    _buckets(args)


def _check_words(args: Recipe) -> None:
    """Refuse values that nobody knows of keys that are compared with words."""
    for key, words in WORDS.items():
        args.word(key, words)
    for name in ("use-mcore-models", "cross-entropy-loss-fusion"):
        args.on(name)
    precision = args.peek("trainer.precision")
    if precision is not None and str(precision) not in PRECISIONS:
        raise args.fail("trainer.precision", f"{precision} is not known. Known: {', '.join(PRECISIONS)}.")


def _buckets(args: Recipe) -> None:
    """Say buckets of NeMo's own optimizer."""
    cap, name = args.number("model.optim.bucket_cap_mb"), args.peek("model.optim.name")
    if cap and name == "distributed_fused_adam" and not args.on("use-torch-fsdp2"):
        size = 2 if args.peek("model.optim.grad_sync_dtype") in ("bf16", "fp16") else 4
        args.say("sharding.reduce_bucket", int(cap * MEBI / size), "model.optim.bucket_cap_mb")


def _bridge(args: Recipe) -> None:
    """Megatron-Bridge."""
    layout = args.peek(LAYOUT)
    if layout is not None and args.has(CHUNKS):
        args.ignore(CHUNKS, "as the layout says")
        del args._spelled["--num-virtual-stages-per-pipeline-rank"]
    if args.raw("model.should_pad_vocab"):
        args._spelled["--vocab-size"] = args._spelled.pop("--padded-vocab-size")
    numbers = args.peek("mixed_precision")
    if isinstance(numbers, str):
        recipe = table("nemo")["recipes"].get(numbers)
        if recipe is None:
            args.warn("mixed_precision", f"{numbers} is not known; --set training.precision=...")
        else:
            args.say("training.precision", recipe.get("precision", recipe["low"]), "mixed_precision")
            if recipe["low"] == "bf16" and not args.has("ddp.grad_reduce_in_fp32"):
                args.assume("training.gradients", "fp32", f"Megatron-Bridge's {numbers}")
    target = str(args.raw("model.activation_func._target_") or "")
    if args.on("swiglu") and "gelu" in target:
        args.warn("model.activation_func._target_", f"not modelled: the gate is {target}; here SiLU")
    fused = args.on("cross-entropy-loss-fusion") and args.name("cross-entropy-fusion-impl") == "te"
    sharded = args.on("use-megatron-fsdp") or args.on("use-custom-fsdp")
    name = "megatron-fsdp" if sharded else "megatron-core-fused-loss" if fused else "megatron-core"
    _megatron(args, name, "Megatron-Bridge runs Megatron-Core with Transformer Engine")


def _megatron(args: Recipe, name: str, reason: str) -> Degrees:
    """What both say as Megatron-LM's arguments do."""
    layers = model(args)
    degrees = parallel(args, layers)
    framework(args, degrees, name, reason)
    training(args, degrees, deepspeed=False)
    for key in args.given(*SHOWING):
        args.use(key, f"framework = {name}")
    return degrees


register(
    Importer(
        name="nemo",
        title="NeMo's YAML",
        about="The configuration of a training of NeMo 1 (`megatron_gpt_config.yaml` and those of its launcher: "
        "`trainer`, `model`) and of Megatron-Bridge, also of NeMo 2 (`model`, `train`, `ddp`, `mixed_precision`, ...). "
        "`${...}` is replaced by what stands elsewhere in the file; sums such as `${multiply:a,b}` are done.",
        leaves_open="The machine (cluster.topology), often the number of nodes, and the size of the vocabulary where "
        "a tokenizer says it.",
        keys=KEYS,
        sniff=sniff,
        load=load,
        notes=(
            "`virtual_pipeline_model_parallel_size` counts the chunks of a rank.",
            "An override of a recipe says only what differs; what it leaves out is not the recipe's, but open or "
            "Megatron-LM's default.",
            "Each key stands for an argument of Megatron-LM: [megatron](megatron.md) says what follows from these.",
        ),
    )
)
