"""Tables of ``tests/data``: CSV files whose first lines, after a #, say where they come from."""

from __future__ import annotations

import csv
from pathlib import Path

from trainsim.models.calls import Modules, modules
from trainsim.models.reading import transformer

DATA = Path(__file__).parent / "data"


def rows(name: str) -> list[dict[str, str]]:
    lines = [line for line in (DATA / name).read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def tiny_llama(layers: int) -> Modules:
    """The model of DeepSpeed's and DDP's runs in ``zero3_*.csv``."""
    sizes = {"layers": layers, "hidden": 64, "heads": 4, "ffn_hidden": 192, "vocab": 512}
    return modules(transformer({"family": "llama"} | sizes), padded_vocab=512)
