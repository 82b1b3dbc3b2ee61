"""The model, the machine and the perturbations that a scenario names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from trainsim.contracts.job import Delay, Skip, Slow
from trainsim.errors import NotBuilt, ScenarioError, TrainsimError, UnknownName, nearest
from trainsim.hardware.cluster import Cluster, load_topology
from trainsim.hardware.topology import OVERRIDES
from trainsim.models.transformer import Transformer, load_model, transformer
from trainsim.scenario.checks import Fault
from trainsim.scenario.context import Context
from trainsim.scenario.loading import read_scenario
from trainsim.scenario.schema import ModelSpec, SlowSpec

MOST_RANKS = 1 << 21
BESIDE = ("delayed_update", "pipeline_read", "pipeline_write")
"""Kinds of offload whose chains count on an update in every step."""


def find_model(context: Context) -> Transformer:
    """The model of the catalogue, of a YAML file or of the mapping. Raises ScenarioError or NotBuilt."""
    named = context.spec.model
    with context.at("model"):
        if isinstance(named, ModelSpec):
            later = {"moe", "mla", "encoder_layers"}
            return transformer(named.model_dump(exclude_none=True, exclude_unset=True, exclude=later))
        if "/" not in named and Path(named).suffix not in (".yaml", ".yml", ".json"):
            return load_model(named)
        path = context.origin.folder / named
        if path.suffix == ".json":
            raise NotBuilt("reading config.json is not built yet; write its numbers as a mapping under model:")
        return transformer(read_scenario(path)[0])


def find_cluster(context: Context) -> Cluster:
    """The topology of the scenario with its number of nodes and overrides. Raises ScenarioError."""
    spec = context.spec.cluster
    for key in spec.model_extra or {}:
        if key not in OVERRIDES:
            near = nearest(key, OVERRIDES)
            hint = f"did you mean {near!r}?" if near else f"known here: topology, {', '.join(OVERRIDES)}"
            context.require(Fault(f"cluster.{key}", f"unknown key; {hint}"), ScenarioError)
    name = spec.topology
    beside = context.origin.folder / name
    if ("/" in name or name.endswith((".yaml", ".yml"))) and beside.is_file():
        name = str(beside)
    for given in (v for v in (spec.model_extra or {}).values() if isinstance(v, dict)):
        if wrong := [key for key in given if not isinstance(key, str)]:
            context.require(Fault("cluster", f"{wrong[0]!r} is no key: it must be a word"), ScenarioError)
    overrides = json.dumps(spec.model_extra or {}, sort_keys=True, default=str)
    try:
        cluster = _cluster(name, spec.nodes, overrides)
    except TrainsimError as error:
        _, found, rest = str(error).partition("override ")
        key, colon, what = rest.partition(": ")
        ours = found and colon and key in OVERRIDES
        of_gpu = "gpu" in (spec.model_extra or {}) and isinstance(error, UnknownName) and error.kind == "GPU"
        whole = context.message("cluster.gpu" if of_gpu else "cluster.topology", str(error))
        text = context.message(f"cluster.{key}", what) if ours else whole
        raise ScenarioError(text) from None
    if spec.nodes is None:
        context.derived("cluster.nodes", cluster.nodes, f"as topology {spec.topology} says")
    if cluster.ranks > MOST_RANKS:
        fault = Fault("cluster.nodes", f"{cluster.ranks} GPUs are more than {MOST_RANKS}, the most that is simulated")
        context.require(fault, ScenarioError)
    return cluster


@lru_cache(maxsize=64)
def _cluster(name: str, nodes: int | None, overrides: str) -> Cluster:
    values: Mapping[str, Any] = json.loads(overrides)
    return load_topology(name, nodes=nodes, overrides=values)


def perturbations(context: Context, cluster: Cluster, *, flushes: bool) -> tuple[Slow | Delay | Skip, ...]:
    """What goes wrong in ``what_if``, with the ranks and links that are meant; *flushes*: whether steps have an end."""
    out: list[Slow | Delay | Skip] = []
    for k, entry in enumerate(context.spec.what_if):
        if entry.slow:
            out.append(_slow(context, f"what_if.{k}.slow", entry.slow, cluster))
        if entry.delay:
            _inside(context, f"what_if.{k}.delay.rank", entry.delay.rank, cluster.ranks, "rank")
            out.append(Delay(rank=entry.delay.rank, at=entry.delay.at, seconds=entry.delay.seconds))
        if entry.skip and not flushes:
            message = "this schedule updates weights while others are in flight; one that flushes can skip a step"
            context.require(Fault(f"what_if.{k}.skip", message))
        if entry.skip and any(getattr(context.spec.sharding.offload, key) for key in BESIDE):
            message = f"not simulated yet with {', '.join(BESIDE)} of offload; without them it is"
            context.require(Fault(f"what_if.{k}.skip", message), NotBuilt)
        if entry.skip:
            _inside(context, f"what_if.{k}.skip.step", entry.skip.step, context.spec.simulation.steps, "step")
            out.append(Skip(step=entry.skip.step))
    return tuple(out)


def _slow(context: Context, key: str, slow: SlowSpec, cluster: Cluster) -> Slow:
    factor = float(slow.factor)
    if slow.node is not None:
        _inside(context, f"{key}.node", slow.node, cluster.nodes, "node")
        ranks = np.flatnonzero(cluster.node_of(np.arange(cluster.ranks)) == slow.node)
        return Slow(factor=factor, ranks=tuple(map(int, ranks)))
    number = slow.rank if slow.rank is not None else slow.gpu
    if isinstance(slow.gpu, str):
        number = _gpu(context, f"{key}.gpu", slow.gpu, cluster)
    if isinstance(number, int):
        _inside(context, f"{key}.{'gpu' if slow.rank is None else 'rank'}", number, cluster.ranks, "rank")
        return Slow(factor=factor, ranks=(number,))
    name = (slow.link if slow.nic is None else slow.nic) or ""
    with context.at(f"{key}.{'link' if slow.nic is None else 'nic'}"):
        cluster.find_links(name)
    return Slow(factor=factor, links=(name,))


def _gpu(context: Context, key: str, name: str, cluster: Cluster) -> int:
    """The rank of the GPU called *name*."""
    per_node = cluster.ranks // cluster.nodes
    found = re.fullmatch(r"node(\d{1,9})\.gpu(\d{1,9})", name)
    if not found:
        raise ScenarioError(context.message(key, f"'{name}' is no GPU; a GPU is a rank number, or node0.gpu0"))
    node, gpu = int(found[1]), int(found[2])
    _inside(context, key, node, cluster.nodes, "node")
    _inside(context, key, gpu, per_node, "GPU", " of a node")
    return node * per_node + gpu


def _inside(context: Context, key: str, number: int, size: int, what: str, where: str = "") -> None:
    if number >= size:
        have = f"there are {size} {what}s{where}, 0 to {size - 1}" if size > 1 else f"there is one {what}{where}, 0"
        context.require(Fault(key, have), ScenarioError)
