"""The form of Hugging Face's sweep of nanotron: its own names of columns, and what all of its runs have in common."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from trainsim.documents.catalogue import shipped

SIGNS = frozenset({"pp_engine", "tp_mode", "mem_peak_reserved_GB"})
"""Columns that only this form has."""


def as_usual(cells: Mapping[str, str]) -> dict[str, str]:
    """A row with the columns of the usual form beside its own.

    >>> row = as_usual({"id": "N1", "num_gpus": "8", "nodes": "1.0", "tp": "2", "tp_mode": "REDUCE_SCATTER"})
    >>> row["framework"], row["sequence_parallel"], row["gpus_per_node"]
    ('nanotron', '1', '8')
    """
    scattered = cells.get("tp_mode") == "REDUCE_SCATTER" and _number(cells, "tp", 1) > 1
    return {
        **cells,
        "source": "Hugging Face nanotron sweep",
        "source_id": "nanotron",
        "framework": _software(cells),
        "year": "2025",
        "family": "llama",
        "gated_mlp": "1",
        "kv_heads": cells.get("kv_heads") or cells.get("heads", ""),  # blank where a run failed; none of them groups
        "tied_embeddings": cells.get("tied_embeddings") or "1",  # the same
        "gpu": "H100-SXM5-80GB",
        "gpus_per_node": str(min(8, int(_number(cells, "num_gpus", 8)))),
        "interconnect": "EFA",
        "vpp": "1",
        "schedule": "" if "AllForward" in cells.get("pp_engine", "") else "1F1B",
        "layout": _layout(cells),
        "global_batch": _global_batch(cells),
        "sequence_parallel": "1" if scattered else "0",
        "recompute": "none",
        "flash_attention": "2",
        "precision": "bf16",
        "peak_mem_GB": cells.get("mem_peak_reserved_GB", ""),
        "mem_note": "reserved, GiB, first rank",
    }


def stages_of(costs: list[float], pp: int) -> list[int]:
    """On which of *pp* ranks nanotron puts each block of a model, whose *costs* are in forward order.

    A rank is full once all blocks so far cost more than its share and those before it (build_model in
    src/nanotron/models/base.py); of these the head costs as much as its products, the embedding nothing.

    >>> stages_of([1.0, 1.0, 1.0, 1.0, 2.0], 2)
    [0, 0, 0, 0, 1]
    """
    rank, sum_of, places, so_far = 0, sum(costs), [], 0.0
    for cost in costs:
        so_far += cost
        places.append(rank)
        if so_far > sum_of * ((rank + 1) / pp):
            rank += 1
    return places


def _layout(cells: Mapping[str, str]) -> str:
    """Layers of each pipeline rank, as the ``layout`` of a scenario; nothing without a pipeline."""
    layers, pp = int(_number(cells, "layers", 0)), int(_number(cells, "pp", 1))
    if pp == 1 or not layers:
        return ""
    hidden, vocab = _number(cells, "hidden", 0), _number(cells, "vocab", 0)
    layer = 4 * hidden**2 + 3 * _number(cells, "ffn_hidden", 0) * hidden
    places = stages_of([*[layer] * layers, vocab * hidden], pp)[:layers]
    return f"[{', '.join(str(places.count(rank)) for rank in range(pp))}]"


def _global_batch(cells: Mapping[str, str]) -> str:
    """Sequences per step. Runs that failed have tokens in that column."""
    known = [_number(cells, name, 0) for name in ("dp", "micro_batch", "grad_accum")]
    sequences = known[0] * known[1] * known[2]
    return str(int(sequences)) if sequences else cells.get("global_batch", "")


def _software(cells: Mapping[str, str]) -> str:
    """Which state of the software and of the cluster a run had, told from its own columns.

    A run that is said to have succeeded and to have run out of memory was made twice, and its time is of the first.
    """
    if cells.get("status") == "OOM":
        return "nanotron"  # no time, and nothing that would tell
    nodes, pp = _number(cells, "nodes", 1), _number(cells, "pp", 1)
    mended = cells.get("after_pp_fix") != "False" and cells.get("oom") != "True"
    if nodes > 1 and pp > 1 and not mended:
        return "nanotron, messages that wait"
    rate = _number(cells, "ag_GBps", 0) * 1e9
    known = _constants()
    beyond = known["gathered"] * (1.0 / rate - 1.0 / known["near_rate"]) if rate else 0.0
    waits = nodes > 1 and beyond / _number(cells, "num_gpus", 8) > known["slow_peer"]
    return "nanotron, collectives that wait" if waits else "nanotron"


@cache
def _constants() -> Mapping[str, float]:
    data = shipped("validation", "nanotron").data
    return {name: float(data[name]) for name in ("gathered", "near_rate", "slow_peer")}


def _number(cells: Mapping[str, str], name: str, otherwise: float) -> float:
    """The number in a cell; *otherwise* where it is none."""
    try:
        return float(cells.get(name) or otherwise)
    except ValueError:
        return otherwise
