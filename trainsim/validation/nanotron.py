"""The form of Hugging Face's sweep of nanotron: its own names of columns, and what all of its runs have in common."""

from __future__ import annotations

from collections.abc import Mapping

SIGNS = frozenset({"pp_engine", "tp_mode", "mem_peak_reserved_GB"})
"""Columns that only this form has."""


def as_usual(cells: Mapping[str, str]) -> dict[str, str]:
    """A row with the columns of the usual form beside its own.

    >>> row = as_usual({"id": "N1", "num_gpus": "8", "nodes": "1.0", "tp": "2", "tp_mode": "REDUCE_SCATTER"})
    >>> row["framework"], row["sequence_parallel"], row["gpus_per_node"]
    ('nanotron', '1', '8')
    """
    scattered = cells.get("tp_mode") == "REDUCE_SCATTER" and cells.get("tp", "1") != "1"
    return {
        **cells,
        "source": "Hugging Face nanotron sweep",
        "source_id": "nanotron",
        "framework": "nanotron",
        "year": "2025",
        "family": "llama",
        "gated_mlp": "1",
        "gpu": "H100-SXM5-80GB",
        "gpus_per_node": str(min(8, int(cells.get("num_gpus") or 8))),
        "interconnect": "EFA",
        "vpp": "1",
        "schedule": "" if "AllForward" in cells.get("pp_engine", "") else "1F1B",
        "sequence_parallel": "1" if scattered else "0",
        "recompute": "none",
        "flash_attention": "2",
        "precision": "bf16",
        "peak_mem_GB": cells.get("mem_peak_reserved_GB", ""),
        "mem_note": "reserved",
    }
