"""What a scenario names: the framework, the model, the machine, the optimizer, each by name, by path or in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from trainsim.documents.catalogue import Catalogue, Spec, exists
from trainsim.documents.document import Document, canonical
from trainsim.documents.origin import Origin, key_of
from trainsim.errors import ScenarioError, TrainsimError, nearest
from trainsim.frameworks import FRAMEWORKS, Framework, load_framework
from trainsim.hardware.cluster import Cluster, build_cluster
from trainsim.hardware.collective_constants import COLLECTIVE_CONSTANTS, load_collectives
from trainsim.hardware.gpu import GPUS, load_gpu
from trainsim.hardware.topology import OVERRIDES, TOPOLOGIES, Changes, find_topology, is_named
from trainsim.models.known import MODELS
from trainsim.models.reading import load_model, transformer
from trainsim.models.transformer import SIZES, Transformer
from trainsim.optimizers import OPTIMIZERS, Optimizer, load_optimizer
from trainsim.scenario.checks import Fault, node_count
from trainsim.scenario.context import Context
from trainsim.scenario.placement import written_placement
from trainsim.scenario.schema import ScenarioSpec
from trainsim.schedules.lookup import is_file, order_in
from trainsim.units import format_bandwidth

MOST_RANKS = 1 << 21
OURS = (".yaml", ".yml", ".json")
"""Endings of files that are written for trainsim."""
NAMED: Mapping[str, Catalogue] = {
    "framework": FRAMEWORKS,
    "cluster.topology": TOPOLOGIES,
    "cluster.gpu": GPUS,
    "cluster.collectives": COLLECTIVE_CONSTANTS,
    "training.optimizer": OPTIMIZERS,
}
"""Fields that are a name, a path or a mapping with a ``base``."""
WORDS = ("name", "description", "source")
"""Keys of a document that only people read, where nothing is found by its name."""


def find_framework(context: Context) -> Framework:
    """The profile of the scenario, as it behaves in its precision."""
    spec, origin = context.spec.framework or "", context.origin.part(("framework",))
    with context.at("framework"):
        return load_framework(spec, context.spec.training.precision, origin=origin)


def find_optimizer(context: Context) -> Optimizer:
    """The optimizer of the scenario."""
    with context.at("training.optimizer"):
        return load_optimizer(context.spec.training.optimizer, origin=context.origin.part(("training", "optimizer")))


def find_model(context: Context) -> Transformer:
    """The model of the catalogue, of a YAML file or of the mapping. Raises ScenarioError or NotBuilt."""
    model, origin = context.spec.model, context.origin.part(("model",))
    with context.at("model"):
        if isinstance(model, str):
            return load_model(model, origin=origin)
        given = model.model_dump(exclude_none=True, exclude_unset=True)
        return load_model(given, origin=origin) if model.base else transformer(given)


def find_cluster(context: Context) -> Cluster:
    """The topology of the scenario with its number of nodes and overrides. Raises ScenarioError."""
    spec = context.spec.cluster
    with context.at("cluster.topology"):
        document = _topology(spec.topology, context.origin.part(("cluster", "topology")))
    changes = _with_gpus(context, _changes(context), document.data.get("gpus_per_node"))
    try:
        cluster = build_cluster(document, changes)
    except TrainsimError as error:
        raise ScenarioError(context.placed("cluster.topology", str(error), *changes.places.values())) from None
    if "nodes" not in changes.values:
        context.derived("cluster.nodes", cluster.nodes, f"as topology {cluster.name} says")
    if cluster.ranks > MOST_RANKS:
        fault = Fault("cluster.nodes", f"{cluster.ranks} GPUs exceed the maximum of {MOST_RANKS}")
        context.require(fault, ScenarioError)
    own = document.data.get("gpu") is not None
    if own and "gpu" in changes.values and "nvlink_bandwidth" not in changes.values:
        _note_nvlink(context, cluster, build_cluster(document, changes.without("gpu")))
    return cluster


def _topology(spec: Spec, origin: Origin) -> Document:
    """What a topology says; of a file that is none and may be another tool's, how it becomes one."""
    try:
        return find_topology(spec, origin=origin)
    except TrainsimError as error:
        name = spec if isinstance(spec, str) else ""
        if Path(name).suffix in OURS or not exists(origin.folder / name):
            raise
        way = f"trainsim import {name} -o node.yaml"
        raise ScenarioError(
            f"{error}. If another tool wrote it, `{way}` converts it to a topology: use that file"
        ) from None


def _changes(context: Context) -> Changes:
    """What the scenario says of the machine beside its topology."""
    spec = context.spec.cluster
    values = dict(spec.model_extra or {})
    for key, value in values.items():
        if key not in OVERRIDES:
            known = dict.fromkeys((*type(spec).model_fields, *OVERRIDES))
            near = nearest(key, known)
            hint = f"did you mean {near!r}?" if near else f"known here: {', '.join(known)}"
            context.require(Fault(f"cluster.{key}", f"unknown key; {hint}"), ScenarioError)
        for inner in value if isinstance(value, dict) else ():
            if not isinstance(inner, str):
                context.require(Fault("cluster", f"{inner!r} is not a key: it must be a word"), ScenarioError)
    if "gpu" in values:
        with context.at("cluster.gpu"):
            values["gpu"] = load_gpu(_spec(values["gpu"]), origin=context.origin.part(("cluster", "gpu")))
    if is_named(constants := values.get("collectives")):
        with context.at("cluster.collectives"):
            origin = context.origin.part(("cluster", "collectives"))
            values["collectives"] = dict(load_collectives(constants, origin=origin))
    if spec.nodes is not None:
        values["nodes"] = spec.nodes
    return Changes(values=values, places={key: context.shown(f"cluster.{key}") for key in values})


def _with_gpus(context: Context, changes: Changes, places: object) -> Changes:
    """*changes* with the nodes that ``cluster.gpus`` are, of a topology with *places* for GPUs in a node."""
    gpus, values = context.spec.cluster.gpus, dict(changes.values)
    each = values.get("gpus_per_node", places)
    if gpus is None or isinstance(each, bool) or not isinstance(each, int) or each < 1:  # the latter is told elsewhere
        return changes
    context.require(node_count(gpus=gpus, each=each, nodes=context.spec.cluster.nodes, fixed="gpus_per_node" in values))
    if gpus < each:
        values |= {"gpus_per_node": gpus, "nodes": 1}
        context.derived("cluster.gpus_per_node", gpus, f"{gpus} of the {each} GPUs of a node")
    else:
        values["nodes"] = gpus // each
        context.derived("cluster.nodes", gpus // each, f"{gpus} GPUs / {each} in a node")
    shown = context.shown("cluster.gpus")
    places_of = {key: changes.places.get(key, shown) for key in values}
    return replace(changes, values=values, places=places_of)


def _spec(value: object) -> Spec:
    if isinstance(value, str | Mapping):
        return value
    raise ScenarioError("expected a name, a path or a mapping with a base")


def _note_nvlink(context: Context, cluster: Cluster, usual: Cluster) -> None:
    """A note where the GPU that the scenario puts in the place of the topology's brings links of its own."""
    rate, before, own = cluster.nvlink_bandwidth, usual.nvlink_bandwidth, cluster.gpu.nvlink_bandwidth
    if rate != before:
        reason = f"the NVLink of {cluster.gpu.name}, where {usual.gpu.name} has {format_bandwidth(before)}"
        context.derived("cluster.nvlink_bandwidth", format_bandwidth(rate), reason)
    elif own and not before and cluster.gpus_per_node > 1:
        reason = f"{cluster.name} connects GPUs by PCIe: the NVLink of {cluster.gpu.name} is not used"
        context.derived("cluster.gpu", cluster.gpu.name, reason)


def written_names(spec: ScenarioSpec, origin: Origin) -> dict[str, Any]:
    """The value of each field that names something, as it can be read anywhere, by dotted key."""
    written = {key: partial(catalogue.written, origin=origin.part(key_of(key))) for key, catalogue in NAMED.items()}
    return {key: write(value) for key, write in written.items() if (value := _given(spec, key)) is not None}


def _given(spec: ScenarioSpec, key: str) -> Any:
    """The value of a field of NAMED, as it was given."""
    section, _, name = key.rpartition(".")
    if section == "cluster" and name in OVERRIDES:
        value = (spec.cluster.model_extra or {}).get(name)
        return value if name == "gpu" or is_named(value) else None
    return getattr(getattr(spec, section) if section else spec, name)


def content(spec: ScenarioSpec, origin: Origin) -> str:
    """All that a scenario says, with the content of the files that it names in the place of their paths: equal for
    scenarios that say the same."""
    return canonical(_said(spec, origin)[0])


def contents(spec: ScenarioSpec, origin: Origin) -> tuple[str, str | None]:
    """The content, and the same without what changes no number: what the scenario, its machine and its model are
    called. (Frameworks, GPUs and optimizers are known by their names.) None for a scenario that names something that
    cannot be read."""
    values, unread = _said(spec, origin)
    return canonical(values), None if unread else canonical(_without_words(values))


def _without_words(values: Mapping[str, Any]) -> dict[str, Any]:
    model, cluster = values["model"], values["cluster"]
    if isinstance(model, dict) and any(model.get(size) is not None for size in SIZES):
        model = {key: value for key, value in model.items() if key not in WORDS}
    if isinstance(machine := cluster["topology"], dict):
        cluster = {**cluster, "topology": {key: value for key, value in machine.items() if key not in WORDS}}
    return {**values, "name": None, "model": model, "cluster": cluster}


def _said(spec: ScenarioSpec, origin: Origin) -> tuple[dict[str, Any], bool]:
    """The values of a scenario and of the files that it names, and whether something could not be read, which is
    refused when the scenario is resolved."""
    values, unread = spec.model_dump(exclude={"derived"}), False
    for key, catalogue in {**NAMED, "model": MODELS}.items():
        section, _, name = key.rpartition(".")
        place = values[section] if section else values
        if isinstance(place.get(name), str) or (isinstance(place.get(name), dict) and place[name].get("base")):
            try:
                place[name] = catalogue.written(_bare(place[name]), origin=origin.part(key_of(key)))
            except TrainsimError:
                unread = True
    try:
        if (hosts := written_placement(spec.cluster, origin.folder)) is not None:
            values["cluster"]["placement"] = list(hosts)
    except TrainsimError:
        unread = True
    schedule = spec.pipeline.schedule
    if schedule and is_file(schedule):
        try:
            values["pipeline"]["schedule"] = order_in(schedule_path(schedule, origin.folder)).texts
        except TrainsimError:
            unread = True
    return values, unread


def _bare(value: Any) -> Any:
    """A mapping without what it leaves out."""
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


def schedule_path(schedule: str, folder: Path) -> str:
    """The file of a schedule that a scenario in *folder* names: beside the scenario, else where the program runs."""
    beside = folder / schedule
    return str(beside) if exists(beside) else schedule
