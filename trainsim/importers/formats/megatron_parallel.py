"""
Degrees, stages and schedules that arguments of Megatron-LM ask for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainsim.importers.formats.megatron_arguments import Arguments
from trainsim.importers.tables import table

LONGEST = 1 << 14
VIRTUAL = ("num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank")
NODES = ("launch.--nnodes", "launch.--num_nodes", "launch.--nodes", "sbatch.--nodes")
GPUS = (
    *("launch.--nproc_per_node", "launch.--num_gpus", "launch.--gpus-per-node"),
    *("sbatch.--gpus-per-node", "sbatch.--ntasks-per-node"),
)
"""Who says how many there are, the first before the others."""


@dataclass(frozen=True, slots=True)
class Degrees:
    """Degrees of parallelism as far as others depend on them."""

    tp: int
    pp: int
    cp: int
    ep: int
    chunks: int


def parallel(args: Arguments, layers: int | None) -> Degrees:
    """Say the degrees, and what the pipeline looks like."""
    tp = _degree(args, "parallel.tp", "tensor-model-parallel-size", "model-parallel-size")
    pp = 1 if args.on("no-pipeline-parallel") else 0
    if pp:
        args.use(args.key("no-pipeline-parallel"), "parallel.pp = 1")
        args.raw(args.key("pipeline-model-parallel-size"))
    pp = pp or _degree(args, "parallel.pp", "pipeline-model-parallel-size")
    cp = _degree(args, "parallel.cp", "context-parallel-size", "ds-sequence-parallel-size")
    ep = _degree(args, "parallel.ep", "expert-model-parallel-size", "moe-expert-parallel-size")
    args.say("parallel.etp", args.count("expert-tensor-parallel-size"), *args.given("expert-tensor-parallel-size"))
    _sequence(args, tp, cp)
    if args.on("use-tp-pp-dp-mapping"):
        args.say("parallel.order", ["tp", "cp", "ep", "pp", "dp"], *args.given("use-tp-pp-dp-mapping"))
    chunks = _pipeline(args, pp, layers)
    return Degrees(tp, pp, cp, ep, chunks)


def _degree(args: Arguments, key: str, *names: str) -> int:
    for name in names:
        size: int | None = args.count(name)
        if size is not None:
            args.say(key, size, *args.given(name))
            return size
    return 1


def _sequence(args: Arguments, tp: int, cp: int) -> None:
    """Say how a sequence is cut: over tp between layers, over cp everywhere."""
    if args.on("sequence-parallel"):
        if tp > 1:
            args.say("parallel.sequence_parallel", True, *args.given("sequence-parallel"))
        else:
            args.ignore(args.key("sequence-parallel"), "without effect: Megatron-LM turns it off where tp is 1")
    if args.has(args.key("ds-sequence-parallel-size")) and cp > 1:
        args.say("parallel.context_parallel", "ulysses", *args.given("ds-sequence-parallel-size"))
    kinds = args.words("cp-comm-type")
    sizes = args.words("hierarchical-context-parallel-sizes")
    if not kinds or cp == 1:
        return
    if len(set(kinds)) > 1:
        args.warn(args.key("cp-comm-type"), f"not modelled: a kind per layer; {kinds[0]} is used for all")
    known = table("megatron")["context_parallel"]
    if kinds[0] not in known:
        raise args.fail(args.key("cp-comm-type"), f"{kinds[0]} is not known. Known: {', '.join(known)}.")
    args.say("parallel.context_parallel", known[kinds[0]], *args.given("cp-comm-type"))
    if known[kinds[0]] == "hybrid" and sizes and sizes[0].isdecimal() and len(sizes[0]) < 9:
        args.say("parallel.ulysses", int(sizes[0]), *args.given("hierarchical-context-parallel-sizes"))


def _pipeline(args: Arguments, pp: int, layers: int | None) -> int:
    """Say chunks, layers of stages and the schedule; the chunks of a rank."""
    by_layers = args.count("num-layers-per-virtual-pipeline-stage")
    by_chunks = args.count("num-virtual-stages-per-pipeline-rank")
    text = args.name("pipeline-model-parallel-layout")
    given = args.given(*VIRTUAL, "pipeline-model-parallel-layout")
    if len(given) > 1:
        raise args.fail(given[1], f"goes against {given[0].rpartition('.')[2]}; Megatron-LM takes one of them")
    chunks = by_chunks or 1
    if by_layers and layers is not None:
        chunks = _chunks_of(args, pp, by_layers, layers)
    if text:
        chunks = _laid_out(args, pp, text)
    else:
        _shares(args, pp, chunks, layers)
    if chunks > 1:
        if pp == 1:
            raise args.fail(given[0], "virtual stages need --pipeline-model-parallel-size of 2 or more")
        args.say("pipeline.chunks", chunks, given[0])
    elif given and not text:
        args.use(given[0], "one chunk per rank")
    _schedule(args, chunks)
    return chunks


def _chunks_of(args: Arguments, pp: int, by_layers: int, layers: int) -> int:
    """Chunks of a rank, where the argument counts the layers of one."""
    key = args.key("num-layers-per-virtual-pipeline-stage")
    counted = layers + sum(args.on(f"account-for-{part}-in-pipeline-split") for part in ("embedding", "loss"))
    if counted % (pp * by_layers):
        works = [n for n in range(1, counted // pp + 1) if counted % (pp * n) == 0]
        way = f"{' or '.join(map(str, works))} would" if works else "no number would"
        raise args.fail(key, f"{counted} layers are not divisible by pp {pp} x {by_layers} per virtual stage; {way}")
    return counted // (pp * by_layers)


def _laid_out(args: Arguments, pp: int, text: str) -> int:
    """Say the layout of a text such as ``Et*2|(tt|)*5t|tmL``; the chunks of a rank."""
    key = args.key("pipeline-model-parallel-layout")
    plain = re.sub(r"[\s,'\"]", "", text)
    while True:
        longer = re.sub(r"\(([^()]*)\)(?:\*(\d{1,4}))?", lambda m: m[1] * int(m[2] or 1), plain)
        longer = re.sub(r"([EtmL|])\*(\d{1,4})", lambda m: m[1] * int(m[2]), longer)
        if longer == plain:
            break
        plain = longer
        if len(plain) > LONGEST:
            raise args.fail(key, "the layout has too many layers")
    stages = plain.split("|")
    if not re.fullmatch(r"[EtmL|]+", plain) or plain.count("E") != 1 or plain.count("L") != 1:
        raise args.fail(key, f"{text} is not a layout: E, t, m and L between |, such as Et*2|(tt|)*5t|tmL")
    if len(stages) % pp:
        raise args.fail(key, f"{len(stages)} stages are not divisible by pp {pp}")
    if "E" not in stages[0] or "L" not in stages[-1]:
        raise args.fail(key, "embedding or loss stand in another than the first or last stage, which is not simulated")
    if any("m" in stage for stage in stages[:-1]):
        args.warn(key, "not modelled: layers that predict further tokens (m) stand in the last stage here")
    args.say("pipeline.layout", [stage.count("t") for stage in stages], key)
    return len(stages) // pp


def _shares(args: Arguments, pp: int, chunks: int, layers: int | None) -> None:
    """Say the layers of stages where they are not all alike."""
    ends = [args.on(f"account-for-{part}-in-pipeline-split") for part in ("embedding", "loss")]
    first, last = args.count("decoder-first-pipeline-num-layers"), args.count("decoder-last-pipeline-num-layers")
    method = args.name("pp-partition-method")
    alone = args.on("standalone-embedding-stage")
    if layers is None:
        return
    if any(ends):
        both = zip(("embedding", "loss"), ends, strict=True)
        names = [f"account-for-{part}-in-pipeline-split" for part, on in both if on]
        each, rest = divmod(layers + sum(ends), pp * chunks)
        if rest:
            what = f"{layers} layers + {sum(ends)}"
            raise args.fail(args.key(names[0]), f"{what} are not divisible by {pp * chunks} stages")
        layout = [each] * (pp * chunks)
        layout[0] -= ends[0]
        layout[-1] -= ends[1]
        args.say("pipeline.layout", layout, *args.given(*names))
    elif first is not None or last is not None:
        _ends(args, pp, chunks, layers)
    elif alone and pp > 1:
        if layers % (pp - 1):
            raise args.fail(args.key("standalone-embedding-stage"), f"{layers} layers are not divisible by pp {pp} - 1")
        args.say("pipeline.layout", [0, *[layers // (pp - 1)] * (pp - 1)], *args.given("standalone-embedding-stage"))
    elif method:
        _partitioned(args, pp, layers, method)


def _ends(args: Arguments, pp: int, chunks: int, layers: int) -> None:
    """Say the layout of a pipeline whose first or last rank has its own number of layers."""
    names = ("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers")
    first, last = (args.count(name) for name in names)
    between = pp - (first is not None) - (last is not None)
    left = layers - (first or 0) - (last or 0)
    key = args.given(*names)[0]
    if left < 0 or (between and left % between) or (not between and left):
        raise args.fail(key, f"{left} layers are left for {between} ranks, which do not divide")
    ranks = [n for n in [first] if n is not None] + [left // between if between else 0] * between
    ranks += [n for n in [last] if n is not None]
    uneven = [n for n in ranks if n % chunks]
    if uneven:
        raise args.fail(key, f"{uneven[0]} layers of a rank do not divide into {chunks} virtual stages")
    args.say("pipeline.layout", [n // chunks for n in ranks] * chunks, *args.given(*names))


def _partitioned(args: Arguments, pp: int, layers: int, method: str) -> None:
    """Say the layout of DeepSpeed's partition: parts of the sequence of layers that weigh as little as can be."""
    key = args.key("pp-partition-method")
    kinds = method.casefold().removeprefix("type:").split("|") if method.casefold().startswith("type:") else []
    if not kinds or "transformer" not in kinds:
        args.warn(key, f"not modelled: stages by {method}; layers are dealt out alike")
        return
    embeds = "embedding" in kinds
    if pp == 1 or (not embeds and layers % pp == 0):
        args.use(key, "layers are dealt out alike")
        return
    parts = balanced(layers + 2 * embeds, pp)
    layout = [n - (embeds and k == 0) - (embeds and k == pp - 1) for k, n in enumerate(parts)]
    if min(layout) < 0:
        raise args.fail(key, f"{layers} layers and two embeddings leave a stage of {pp} without layers")
    args.say("pipeline.layout", layout, key)


def balanced(layers: int, parts: int) -> list[int]:
    """How many of *layers* each of *parts* takes, in order, so that the largest is as small as can be and every part
    takes as many as it may (deepspeed/runtime/utils.py, partition_balanced, where all weigh the same).

    >>> balanced(72, 12), balanced(26, 4)
    ([6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6], [7, 7, 7, 5])
    """
    limit = -(-layers // parts)
    return [max(0, min(limit, layers - k * limit)) for k in range(parts)]


def _schedule(args: Arguments, chunks: int) -> None:
    group = args.count("microbatch-group-size-per-virtual-pipeline-stage")
    if group is not None and chunks > 1:
        args.say("pipeline.group", group, *args.given("microbatch-group-size-per-virtual-pipeline-stage"))
    if args.on("no-overlap-p2p-communication") and chunks > 1:
        args.say("pipeline.p2p", "blocking", *args.given("no-overlap-p2p-communication"))
    if args.on("enable-zbh1-pipeline"):
        args.say("pipeline.schedule", "zb-h1", *args.given("enable-zbh1-pipeline"))
    if args.on("overlap-moe-expert-parallel-comm"):
        args.say("training.moe_overlap", True, *args.given("overlap-moe-expert-parallel-comm"))
        if args.on("delay-wgrad-compute"):
            args.say("training.delay_wgrad", True, *args.given("delay-wgrad-compute"))
    elif args.on("delay-wgrad-compute"):
        args.ignore(args.key("delay-wgrad-compute"), "without effect: --overlap-moe-expert-parallel-comm is not there")


def machine(args: Arguments) -> int | None:
    """Say how many GPUs the launcher or the scheduler asks for; how many they are, if it is known."""
    nodes, each = _first(args, *NODES), _first(args, *GPUS)
    if nodes and each:
        args.say("cluster.gpus", nodes[1] * each[1], nodes[0], each[0])
        asked = args.raw("sbatch.--nodes")
        if isinstance(asked, int) and asked != nodes[1]:
            args.warn(nodes[0], f"{nodes[1]} nodes, but the scheduler is asked for {asked}")
        return nodes[1] * each[1]
    if nodes:
        args.say("cluster.nodes", nodes[1], nodes[0])
    return None


def check_groups(args: Arguments, degrees: Degrees, gpus: int | None) -> None:
    """Tell where Megatron-LM would not interleave: micro-batches that are left over must be none or a group."""
    each, whole = args.count("micro-batch-size"), args.count("global-batch-size")
    stages = degrees.tp * degrees.pp * degrees.cp
    if degrees.chunks == 1 or not (gpus and each and whole) or gpus % stages or whole % (each * (gpus // stages)):
        return
    count = whole // (each * (gpus // stages))
    group = args.count("microbatch-group-size-per-virtual-pipeline-stage") or degrees.pp
    if 0 < count % group < degrees.pp:
        words = f"{count} micro-batches per replica are not a multiple of {group}, so Megatron-LM cannot interleave"
        args.warn(args.key("global-batch-size"), words)


def _first(args: Arguments, *keys: str) -> tuple[str, int] | None:
    for key in keys:
        value = args.raw(key) if args.has(key) else None
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 24:
            return key, value
    return None
