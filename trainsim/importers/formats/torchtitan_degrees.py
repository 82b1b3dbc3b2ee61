"""
TitanDegrees of torchtitan's TOML, and how it deals layers to the stages of a pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from trainsim.errors import shorten
from trainsim.importers.reader import Reader
from trainsim.importers.tables import table

SECTIONS = ("parallelism", "training", "experimental")
"""Where degrees stand: the newest spelling first."""
WHOSE = "torchtitan's default"


@dataclass(frozen=True, slots=True)
class TitanDegrees:
    """TitanDegrees of parallelism; ``shard`` is None where it is whatever is left."""

    tp: int
    pp: int
    cp: int
    ep: int
    replicate: int
    shard: int | None

    @property
    def dp(self) -> int | None:
        """Data-parallel ranks, if the file says how many."""
        return None if self.shard is None else self.shard * self.replicate


def first(reader: Reader, *keys: str) -> str:
    """The first of *keys* that is in the file, else the first of all. Of the others a remark is made."""
    there = [key for key in keys if reader.has(key)]
    for other in there[1:]:
        reader.ignore(other, f"an older name of {there[0]}, which is in the file as well")
    return there[0] if there else keys[0]


def named(reader: Reader, name: str) -> str:
    """The key called *name* in the section in which the file has it."""
    return first(reader, *(f"{section}.{name}" for section in SECTIONS))


def degrees_of(reader: Reader) -> TitanDegrees:
    """Say the degrees."""
    said: dict[str, int] = {}
    for axis, name in {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}.items():
        key = named(reader, f"{name}_parallel_degree")
        degree = reader.whole(key)
        said[axis] = degree or 1
        reader.say(f"parallel.{axis}", degree, key)
    replicate, shard = _replicas(reader)
    degrees = TitanDegrees(**said, replicate=replicate, shard=shard)
    if degrees.dp is not None:
        world = degrees.dp * degrees.tp * degrees.pp * degrees.cp
        reader.assume("cluster.gpus", world, "the product of the file's degrees")
    if said["ep"] > 1:
        _experts(reader)
    if said["cp"] > 1:
        key = named(reader, "context_parallel_rotate_method")
        methods = table("torchtitan")["rotate_methods"]
        if method := reader.word(key, methods):
            reader.say("parallel.context_parallel", methods[method], key)
        else:
            reader.assume("parallel.context_parallel", methods["allgather"], WHOSE)
    return degrees


def _experts(reader: Reader) -> None:
    """Say how experts are cut and reached."""
    key, backend = "parallelism.expert_tensor_parallel_degree", "parallelism.expert_parallel_comm_backend"
    if etp := reader.whole(key):
        reader.say("parallel.etp", etp, key)
    else:
        reader.assume("parallel.etp", 1, WHOSE)
    dispatchers = table("torchtitan")["dispatchers"]
    if name := reader.word(backend, dispatchers):
        reader.say("training.moe.dispatcher", dispatchers[name], backend)


def _replicas(reader: Reader) -> tuple[int, int | None]:
    """Replicas and ranks of a shard; None where -1 or nothing says that it is what is left."""
    key, many = named(reader, "data_parallel_shard_degree"), named(reader, "data_parallel_replicate_degree")
    replicate = reader.whole(many) or 1
    if reader.has(many):
        reader.use(many, f"{replicate} groups of ranks that each hold all states")
    if not reader.has(key):
        key = named(reader, "data_parallel_degree")  # of 2024: shards of one group
    shard = reader.whole(key, low=-1)
    if shard == 0:
        raise reader.fail(key, "0 is not a degree; -1 means whatever ranks are left")
    if shard in (None, -1):
        if shard:
            reader.use(key, "parallel.dp follows from the number of GPUs")
        return replicate, None
    reader.say("parallel.dp", shard * replicate, key, *([many] if reader.has(many) else []))
    return replicate, shard


def pipeline(reader: Reader, degrees: TitanDegrees, layers: int | None) -> int:
    """Say schedule, chunks and layout; the chunks per rank."""
    key, words = named(reader, "pipeline_parallel_schedule"), table("torchtitan")
    csv = named(reader, "pipeline_parallel_schedule_csv")
    known = {**words["schedules"], **{old: words["schedules"][new] for old, new in words["older_schedules"].items()}}
    if degrees.pp == 1:
        return 1
    if path := reader.text(csv):
        reader.say("pipeline.schedule", path, csv)
        reader.ignore(key, "the order comes from the file")
        return 1
    name = reader.word(key, known)
    entry = known[name or "1F1B"]
    if name:
        reader.say("pipeline.schedule", entry["schedule"], key)
    else:
        reader.assume("pipeline.schedule", entry["schedule"], WHOSE)
    parts, sources = _parts(reader, degrees, layers, entry["chunks"])
    if parts is not None:
        chunks = len(parts) // degrees.pp
        if sources:
            reader.say("pipeline.layout", parts, *sources)
        else:
            reader.assume("pipeline.layout", parts, "torchtitan counts embedding and head as a layer each")
    else:
        chunks = entry["chunks"]
    if chunks > 1:
        reader.assume("pipeline.chunks", chunks, "stages per rank of this schedule in torchtitan")
    return chunks


def _parts(
    reader: Reader, degrees: TitanDegrees, layers: int | None, chunks: int
) -> tuple[list[int] | None, tuple[str, ...]]:
    """The layers of each virtual stage, and the keys that say so; None where the number of layers is not known."""
    names = "parallelism.module_fqns_per_model_part"
    points = named(reader, "pipeline_parallel_split_points")
    per_stage = named(reader, "pipeline_parallel_layers_per_stage")
    if parts := reader.listing(names):
        sizes = [_layers_in(reader, names, part) for part in parts]
        _check_stages(reader, names, len(sizes), degrees.pp)
        return sizes, (names,)
    if cuts := reader.listing(points):
        _check_stages(reader, points, len(cuts) + 1, degrees.pp)
        starts = [0, *(_layer_of(reader, points, cut) for cut in cuts)]
        sizes = [after - start for start, after in pairwise([*starts, layers or starts[-1]])]
        if min(sizes) < 0:
            raise reader.fail(points, f"{shorten(cuts)} are not in the order of {layers} layers")
        return (None, ()) if layers is None else (sizes, (points,))
    older = not reader.has("parallelism.pipeline_parallel_degree")  # before 2025 layers were dealt evenly
    if layers is None or (older and not reader.has(per_stage)):
        return None, ()
    ends = [_less(reader, "first"), _less(reader, "last")]
    whole = layers + sum(ends)
    if size := reader.whole(per_stage):
        stages = -(-whole // size)
        _check_stages(reader, per_stage, stages, degrees.pp)
        return _even(reader, per_stage, stages, whole, ends), (per_stage,)
    return _even(reader, "model.flavor", degrees.pp * chunks, whole, ends), ()


def _less(reader: Reader, which: str) -> int:
    """By how many layers the first or the last stage is shorter."""
    key = f"parallelism.pipeline_parallel_{which}_stage_less_layers"
    less = reader.whole(key, low=0)
    if less is not None:
        reader.use(key, f"pipeline.layout: the {which} stage has {less} layers less")
    return 1 if less is None else less


def _even(reader: Reader, key: str, stages: int, whole: int, ends: list[int]) -> list[int]:
    """*whole* dealt to *stages*, the first ones taking what is left over; ends give away theirs."""
    sizes = [whole // stages + (k < whole % stages) for k in range(stages)]
    sizes[0] -= ends[0]
    sizes[-1] -= ends[1]
    if min(sizes) < 0:
        raise reader.fail(key, f"{whole - sum(ends)} layers leave nothing for some of {stages} stages")
    return sizes


def _check_stages(reader: Reader, key: str, stages: int, pp: int) -> None:
    if stages % pp:
        raise reader.fail(key, f"{stages} stages are not divisible by pipeline_parallel_degree = {pp}")


def _layers_in(reader: Reader, key: str, part: Any) -> int:
    if not isinstance(part, list) or not all(isinstance(name, str) for name in part):
        raise reader.fail(key, f"expected lists of names of modules, found {shorten(part)}")
    return sum(name.startswith("layers.") for name in part)


def _layer_of(reader: Reader, key: str, cut: Any) -> int:
    number = str(cut).rpartition(".")[2]
    if not str(cut).startswith("layers.") or not number.isdecimal() or len(number) > 6:
        raise reader.fail(key, f"expected names such as layers.8, found {shorten(cut)}")
    return int(number)
