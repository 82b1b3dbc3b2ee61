"""A result as plain data: the keys of ``result.json``. They are public and stable."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trainsim.analysis.kinds import COMMUNICATION
from trainsim.analysis.memory import CATEGORIES, Store

if TYPE_CHECKING:
    from trainsim.analysis.analysis import Analysis


def result_dict(result: Analysis) -> dict[str, Any]:
    """SI numbers, strings, lists and dictionaries only."""
    speed, cost = result.throughput, result.training_cost
    return {
        "scenario": dict(result.scenario),
        "step_time_s": result.step_time,
        "range_s": None if result.likely is None else [result.likely.low, result.likely.high],
        "steps": result.steps,
        "period_s": result.period,
        "tokens_per_s": speed.tokens_per_s,
        "tokens_per_s_per_gpu": speed.tokens_per_s_per_gpu,
        "samples_per_s": speed.samples_per_s,
        "model_flops_per_gpu": speed.model_flops_per_gpu,
        "hardware_flops_per_gpu": speed.hardware_flops_per_gpu,
        "mfu": speed.mfu,
        "hfu": speed.hfu,
        "bubble": _bubble(result),
        "breakdown_s": result.breakdown,
        "waiting_s": result.waiting,
        "breakdown_per_stage_s": list(result.breakdown_per_stage),
        "waits": [asdict(wait) for wait in result.waits],
        "memory": memory_dict(result),
        "communication": _communication(result),
        "links": link_rows(result),
        "critical_path": [cause._asdict() for cause in result.critical_path.causes],
        "estimate": _estimate(result),
        "network_faults": _network_faults(result),
        "rollout": None if result.rollout is None else asdict(result.rollout),
        "training_cost": None if cost is None else cost.to_dict(),
        "parameters": result.parameters,
        "simulation": {
            "ranks": result.lanes.ranks,
            "classes": result.trace.classes,
            "operations": result.trace.operations,
            "events": result.trace.events,
            "wall_s": result.simulation.wall_s,
        },
        "warnings": list(result.warnings),
    }


def _communication(result: Analysis) -> dict[str, Any]:
    sent = result.communication
    return {kind: {**asdict(traffic), "operations": round(traffic.operations)} for kind, traffic in sent.items()}


def link_rows(result: Analysis) -> list[dict[str, Any]]:
    """The busiest link of each kind, the fullest first."""
    keys = ("kind", "name", "equal", "links", "mean", "peak", "nearly_full_s", "bytes")
    return [
        {
            **{key: getattr(row, key) for key in keys},
            "by_kind": {kind: row.by_kind.get(kind, 0.0) for kind in COMMUNICATION},
        }
        for row in result.link_traffic.rows
    ]


def _network_faults(result: Analysis) -> dict[str, Any] | None:
    found = result.network_faults
    if found is None:
        return None
    slowed = [{**asdict(one), "ranks": list(one.ranks)} for one in found.slowed]
    return {**asdict(found), "rerouted": list(found.rerouted), "slowed": slowed}


def _bubble(result: Analysis) -> dict[str, Any]:
    bubble_fields = asdict(result.bubble)
    return {**bubble_fields, "per_stage": list(bubble_fields["per_stage"]), "stages": list(bubble_fields["stages"])}


def memory_dict(result: Analysis) -> dict[str, Any]:
    """What ``memory`` holds in ``result.json``; bytes."""
    use = result.memory
    return {
        "peak_bytes": use.peak,
        "needed_bytes": use.needed,
        "capacity_bytes": use.capacity,
        "reserved_bytes": use.reserved,
        "gpu_bytes": use.nominal,
        "fits": use.fits,
        "peak_rank": use.peak_rank,
        "host": _store(use.host),
        "nvme": _store(use.nvme),
        "not_counted": list(use.not_counted),
        "per_stage": [
            {
                "stage": stage.stage,
                "rank": stage.rank,
                **{category: stage.part(category) for category in CATEGORIES},
                "peak": stage.peak,
                "peak_at_s": stage.peak_at_s,
                "largest": stage.largest,
            }
            for stage in use.per_stage
        ],
    }


def _store(store: Store) -> dict[str, Any]:
    return {"peak_bytes_per_node": store.peak_per_node, "capacity_bytes": store.capacity, "fits": store.fits}


def _estimate(result: Analysis) -> dict[str, Any]:
    expected = result.estimate
    return {
        "step_time_s": expected.seconds,
        "difference": expected.difference,
        "explanation": expected.explanation,
        "contention_s": expected.facts.contention,
        "phases": [
            {"name": p.name, "closed_form_s": p.closed_form, "simulated_s": p.simulated} for p in expected.phases
        ],
    }
