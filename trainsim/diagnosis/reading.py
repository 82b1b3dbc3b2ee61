"""Operation tables in files: Parquet, or CSV with the same columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainsim.diagnosis.job_meta import FRONT, JobMeta, meta_beside, read_meta, shape_of
from trainsim.diagnosis.operations import NUMBER, TYPES, OperationTable, operation_table
from trainsim.errors import InvalidData, UnknownName, shorten
from trainsim.units import format_time

if TYPE_CHECKING:
    from pandas import DataFrame, Series

IN_FILES = {
    "dp_rank": "dp_rank", "stage": "stage", "step": "step", "type": "optype", "start": "start_ts",
    "duration": "duration", "seq_id": "seq_id", "chunk": "mc", "model_chunk": "gmc", "microbatch": "mb_id",
}  # fmt: skip
"""Columns of an operation table -> what they are called in files."""
RANK = "rank"
"""A column that files may have: the first of the ranks for which a worker stands."""
PARQUET, CSV = (".parquet", ".pq"), (".csv", ".csv.gz")
MAGIC = b"PAR1"
WANTED = (
    "expected an operation table (Parquet or CSV) with a row per operation and the columns "
    f"{', '.join(IN_FILES.values())}"
)


def read_operations(paths: str | Path | Sequence[str | Path], *, meta: str | Path | None = None) -> OperationTable:
    """The operations in one or several files of one job. *meta* (YAML: dp_size, pp_size, tp_size, dsp_size, vpp_size,
    and layers if known) says how the job is laid out; without it ``meta-NAME.yaml`` or ``meta.yaml`` beside the first
    file, else what the operations tell. Raises InvalidData for files that are no operation tables, or of several jobs.
    """
    files = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    if not files:
        raise InvalidData(f"no file was given; {WANTED}")
    parts = [_columns(file) for file in files]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != RANK}
    if all(RANK in part for part in parts):
        columns["lane"] = _lanes(columns, np.concatenate([part[RANK] for part in parts]))
    shown = files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"
    about = _meta(files[0], meta)
    _told_once(columns, shown)
    name = (about.name if about else "") or files[0].name.split(".")[0].removeprefix(FRONT)
    shape = shape_of(columns, about, shown)
    try:
        return operation_table(name=name, shape=shape, **columns)
    except InvalidData as fault:
        raise InvalidData(f"{shown}: {str(fault).partition(': ')[2] or fault}") from None


def save_operations(table: OperationTable, path: str | Path) -> Path:
    """Write *table* as Parquet or CSV (by the ending of *path*), and how the job is laid out as ``meta-NAME.yaml``
    beside it, so that ``read_operations`` gives the same table again."""
    import yaml
    from pandas import DataFrame

    path = Path(path)
    frame = DataFrame({file: getattr(table, column) for column, file in IN_FILES.items() if column != "type"})
    frame.insert(3, IN_FILES["type"], [TYPES[number] for number in table.type])
    if table.lane.any():
        frame[RANK] = table.worker
    frame.to_parquet(path, index=False) if path.suffix in PARQUET else frame.to_csv(path, index=False)
    shape = table.shape
    meta = {"trial_name": table.name, "dp_size": shape.dp, "dsp_size": shape.dsp, "pp_size": shape.pp,
            "tp_size": shape.tp, "vpp_size": shape.vpp, "world_size": shape.gpus}  # fmt: skip
    if shape.layers is not None:
        meta["layers"] = shape.layers
    beside = path.parent / f"meta-{path.name.split('.')[0].removeprefix(FRONT)}.yaml"
    beside.write_text(yaml.safe_dump(meta, sort_keys=False), encoding="utf-8")
    return path


def _meta(file: Path, given: str | Path | None) -> JobMeta | None:
    path = Path(given) if given is not None else meta_beside(file)
    return None if path is None else read_meta(path)


def _columns(file: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The columns of one file, by their names in a table. Raises InvalidData."""
    frame = _frame(file)
    missing = [name for name in IN_FILES.values() if name not in frame.columns]
    if missing:
        there = ", ".join(map(str, list(frame.columns)[:20])) or "none"
        raise InvalidData(f"{file}: has no column {', '.join(missing)} (it has {there}); {WANTED}")
    if not len(frame):
        raise InvalidData(f"{file}: has no rows; {WANTED}")
    out = {ours: _numbers(file, frame[theirs]) for ours, theirs in IN_FILES.items() if ours != "type"}
    stored = frame[IN_FILES["start"]].dtype
    _fine_enough(file, out["start"], out["duration"], single=str(stored).lower() in ("float16", "float32"))
    out["type"] = _types(file, frame[IN_FILES["type"]])
    if RANK in frame.columns:
        out[RANK] = _numbers(file, frame[RANK])
    return out


def _frame(file: Path) -> DataFrame:
    """The file as pandas reads it. Raises InvalidData for whatever it cannot read."""
    import pandas as pd

    try:
        with file.open("rb") as opened:
            magic = opened.read(4)
        if not magic:
            raise InvalidData(f"{file}: is empty; {WANTED}")
        if magic == MAGIC or file.suffix in PARQUET:
            _needs_pyarrow(file)
            return pd.read_parquet(file, engine="pyarrow")
        if not file.name.endswith(CSV):
            reason = "not a Parquet file, and its name does not end in .csv"
            raise InvalidData(f"{file}: {reason}; {WANTED}{_profile(file)}")
        return pd.read_csv(file, encoding="utf-8-sig")
    except InvalidData:
        raise
    except OSError as fault:
        reason = fault.strerror or str(fault).splitlines()[0]
        raise InvalidData(f"{file}: cannot be read: {reason}") from None
    except Exception as fault:  # pyarrow and pandas have an exception for each kind of damage
        reason = (str(fault).splitlines() or [type(fault).__name__])[0]
        raise InvalidData(f"{file}: cannot be read as an operation table: {reason}") from None


def _needs_pyarrow(file: Path) -> None:
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise InvalidData(f"{file}: is Parquet, which needs pyarrow: pip install pyarrow; or give the table as CSV")


def _profile(file: Path) -> str:
    if ".json" not in file.name:
        return ""
    return ". A JSON profiler trace shows one rank; a diagnosis needs the operations of all workers over several steps"


def _numbers(file: Path, column: Series[Any]) -> np.ndarray[Any, Any]:
    """A column of numbers. Raises InvalidData, with the row, for what is none."""
    import pandas as pd

    whole = column.name not in (IN_FILES["start"], IN_FILES["duration"])
    if column.dtype.kind in "mMb":
        wanted = "whole numbers" if whole else "numbers of seconds"
        raise InvalidData(f"{file}: {column.name} is a column of {column.dtype}; wanted are {wanted}")
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    wrong = ~np.isfinite(numbers) | (whole & (numbers != np.round(numbers))) | (np.abs(numbers) > 2.0**53)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        wanted = "a whole number" if whole else "a finite number of seconds"
        raise InvalidData(f"{file}: row {row}: {column.name} is {shorten(_plain(column.iloc[row]))}; expected {wanted}")
    return numbers.astype(np.int64) if whole else numbers


def _fine_enough(file: Path, start: np.ndarray[Any, Any], duration: np.ndarray[Any, Any], *, single: bool) -> None:
    """Raise InvalidData where starts are stored so coarsely that operations cannot be told apart by them."""
    latest = np.abs(start).max().astype(np.float32 if single else np.float64)
    apart = float(np.spacing(latest))
    typical = float(np.median(duration[duration > 0])) if (duration > 0).any() else np.inf
    if apart > typical / 2:
        way_out = "store it as float64, or count" if single else "count"
        raise InvalidData(
            f"{file}: start_ts reaches {latest:g} s, where {latest.dtype} tells only times {format_time(apart)} apart, "
            f"but a typical operation takes {format_time(typical)}; {way_out} from the start of the step"
        )


def _types(file: Path, column: Series[Any]) -> np.ndarray[Any, Any]:
    """The numbers of types. Raises InvalidData for one that is not known."""
    kinds = [_plain(kind) for kind in column.unique()]
    unknown = [kind for kind in kinds if kind not in NUMBER]
    if unknown:
        row = int(np.flatnonzero((column == unknown[0]).to_numpy(bool, na_value=True) | column.isna().to_numpy())[0])
        raise InvalidData(f"{file}: row {row}: {UnknownName('type of operation (optype)', str(unknown[0]), TYPES)}")
    number: Mapping[Any, int] = NUMBER
    return column.astype(object).map(number).to_numpy(np.int64)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _lanes(columns: Mapping[str, np.ndarray[Any, Any]], rank: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of workers of one stage with the same dp_rank which one each row is of, by rank."""
    places = np.unique(np.stack([columns["dp_rank"], columns["stage"], rank], axis=1), axis=0, return_inverse=True)
    known, number = places[0], places[1].reshape(-1)
    first = np.append(True, (known[1:, :2] != known[:-1, :2]).any(axis=1))
    begins = np.maximum.accumulate(np.where(first, np.arange(len(known)), 0))
    return (np.arange(len(known)) - begins)[number]


def _told_once(columns: Mapping[str, np.ndarray[Any, Any]], shown: str) -> None:
    """Raise InvalidData where an operation stands twice: the files are of several jobs, or one was given twice."""
    names = ("step", "dp_rank", "stage", "type", "seq_id", "chunk", "microbatch", "start")
    keys = [columns.get("lane", columns["step"] * 0), *(columns[name] for name in names)]
    order = np.lexsort(keys)
    same = np.ones(len(order) - 1, bool)
    for key in keys:
        same &= key[order][1:] == key[order][:-1]
    if same.any():
        row = int(order[np.flatnonzero(same)[0]])
        what = f"{TYPES[columns['type'][row]]} number {columns['seq_id'][row]} of step {columns['step'][row]}"
        raise InvalidData(
            f"{shown}: {what} of dp_rank {columns['dp_rank'][row]}, stage {columns['stage'][row]} appears twice; "
            "give each file once, and only files of one job"
        )
