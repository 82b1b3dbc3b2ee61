"""How a measured job is laid out: as its meta file says, or as its operations tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainsim.diagnosis.operations import BACKWARD, FORWARD, NUMBER, JobShape
from trainsim.documents.document import Document, read_file
from trainsim.errors import InvalidData, shorten

SIZES = {"dp_size": "dp", "pp_size": "pp", "tp_size": "tp", "dsp_size": "dsp", "vpp_size": "vpp", "layers": "layers"}
"""Keys of a meta file -> fields of the shape; other keys are not looked at."""
MOST = 1 << 20
"""Of a degree of parallelism: more is no number of GPUs."""
MOST_TOLD = 1 << 16
"""Of stages, chunks or ranks that a table may have if nobody says how many there are."""
FRONT = "trace-"
DEGREES = ("dp", "dsp", "pp", "tp")
WORDS = {"pp": "stages", "vpp": "chunks per stage", "dp": "data-parallel ranks"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMeta:
    """What a meta file says: the name of the job (empty: none), its sizes, and where that stands."""

    name: str
    sizes: Mapping[str, int]
    where: str


def read_meta(path: Path) -> JobMeta:
    """The meta file at *path*. Raises InvalidData, with the line, for sizes that are none."""
    document = read_file(path, shown=str(path), needs="dp_size, pp_size")
    sizes = {field: _size(document, key) for key, field in SIZES.items() if document.data.get(key) is not None}
    name = document.data.get("trial_name") or document.data.get("name") or ""
    world, product = document.data.get("world_size"), int(np.prod([v for k, v in sizes.items() if k in DEGREES]))
    if isinstance(world, int) and {"dp", "pp", "tp"} <= set(sizes) and world != product:
        raise document.fail(("world_size",), f"world_size is {world}, but the sizes multiply out to {product}")
    return JobMeta(name=str(name), sizes=sizes, where=str(path))


def _size(document: Document, key: str) -> int:
    value: Any = document.data[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise document.fail((key,), f"{key} is a whole number, 1 or more, not {shorten(value)}")
    return value


def meta_beside(table: Path) -> Path | None:
    """The meta file of a table that lies beside it: ``meta-NAME.yaml`` for ``trace-NAME.parquet``, or ``meta.yaml``."""
    name = table.name.split(".")[0].removeprefix(FRONT)
    some = (table.parent / f"{file}.{ending}" for file in (f"meta-{name}", "meta") for ending in ("yaml", "yml"))
    return next((file for file in some if file.is_file()), None)


def shape_of(columns: Mapping[str, np.ndarray[Any, Any]], meta: JobMeta | None, table: str) -> JobShape:
    """The layout that *meta* says, and where it says nothing the one that the columns of a table tell; ``tp`` cannot
    be told from them. Raises InvalidData where the table has more than the meta file allows."""
    passes = np.isin(columns["type"], [NUMBER[FORWARD], NUMBER[BACKWARD]])
    told = {
        "dp": max(len(np.unique(columns["dp_rank"][columns["dp_rank"] >= 0])), 1),
        "pp": max(int(columns["stage"].max(initial=0)), 0) + 1,
        "vpp": max(int(columns["chunk"][passes].max(initial=0)), 0) + 1,
    }
    shape = JobShape(**{**told, **(meta.sizes if meta else {})})
    for field, most in (("pp", shape.pp), ("vpp", shape.vpp), ("dp", shape.dp * shape.dsp)):
        if told[field] > (most if meta else MOST_TOLD):
            where = f"{meta.where}: {field} allows {most}" if meta else f"{table}: a job has at most {MOST_TOLD}"
            raise InvalidData(f"{where} {WORDS[field]}, but {table} has {told[field]}")
    return shape
