"""A scenario as it would be if the source of its run had never been seen: other software, and fits without it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from trainsim.documents.catalogue import merged, shipped
from trainsim.hardware.cluster import load_topology
from trainsim.hardware.gpu import load_gpu


def without(source: str, scenario: Mapping[str, Any]) -> dict[str, Any]:
    """*scenario* without what was learnt from *source*.

    >>> without("S4", {"framework": "megatron-2022", "cluster": {"topology": "dgx_a100"}})["framework"]
    'megatron-2021'
    """
    told = _told()
    data = dict(scenario)
    data["framework"] = _replaced(data["framework"], told["software"].get(source, {}))
    cluster = dict(data["cluster"])
    gpu = cluster.get("gpu") or load_topology(cluster["topology"], nodes=1).gpu.name
    kernels = load_gpu(gpu).kernels.name
    if changed := told["kernels"].get(source, {}).get(kernels):
        cluster["gpu"] = {"base": gpu, "kernels": {"base": kernels, **changed}}
    return data | {"cluster": cluster}


def learnt_from(source: str) -> bool:
    """Whether *source* taught anything that can be left out."""
    return any(source in of for of in _told().values())


def _replaced(framework: Any, instead: Mapping[str, Any]) -> Any:
    """The profile, or the base of one that is written in place, by what stands in for it."""
    if not isinstance(framework, Mapping):
        return instead.get(framework, framework)
    base, own = _replaced(framework["base"], instead), {key: framework[key] for key in framework if key != "base"}
    return merged(base, own) if isinstance(base, Mapping) else {"base": base, **own}


@cache
def _told() -> Mapping[str, Any]:
    return shipped("validation", "left_out").data
