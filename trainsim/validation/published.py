"""A published training run: one row of a table of runs, its columns read and checked."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from trainsim.errors import InvalidData, TrainsimError, nearest

TABLES = {file.stem: file for file in sorted((Path(__file__).parent / "data").glob("*.csv"))}
"""The tables that ship, by name."""
SHIPPED = TABLES["runs"]
REQUIRED = ("id", "gpu", "num_gpus", "global_batch", "seq_len")
"""Columns without which a row is no run."""
SIZES = ("layers", "hidden", "heads", "vocab")
"""What a model needs, unless its name is one of the catalogue."""
FURTHER = ("kind", "layout", "oom", "status")
"""Columns that are read and that the shipped table does not have."""
MISSPELT = 0.81
"""How alike a column that nobody reads and one that is missing are, where the one is taken for the other."""
TIMES = ("derived_step_time_s", "step_time_s", "tokens_per_s_per_gpu", "samples_per_s")
"""Columns of which a row has one at least, or it has no time to compare with."""


class UnreadableCell(TrainsimError):
    """A cell of a row is no value of its column; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """One row: texts as printed (empty where blank), numbers or None; seconds, tokens and GB as the columns say.

    >>> run = next(iter(read_runs(SHIPPED)))
    >>> run.number("layers") > 0, run.text("no such column")
    (True, '')
    """

    line: int
    cells: Mapping[str, str]

    @property
    def id(self) -> str:
        return self.cells.get("id") or f"line {self.line}"

    @property
    def source(self) -> str:
        """What rows are grouped by: the source's short name, else its long one."""
        return self.text("source_id") or self.text("source") or "unknown"

    def text(self, column: str) -> str:
        """The cell as it is printed; empty where it is blank or there is no such column."""
        return (self.cells.get(column) or "").strip()

    def number(self, column: str) -> float | None:
        """The number in the cell; None where it is blank. Raises UnreadableCell."""
        text = self.text(column)
        if not text or text.lower() in ("nan", "none", "null"):
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UnreadableCell(f"{column} = {text!r} is not a number")
        return value

    def whole(self, column: str, otherwise: int | None = None) -> int | None:
        """The whole number in the cell; *otherwise* where it is blank. Raises UnreadableCell."""
        value = self.number(column)
        if value is None:
            return otherwise
        if value != int(value) or value < 0:
            raise UnreadableCell(f"{column} = {self.text(column)!r} is not a whole number{' from 0 on' * (value < 0)}")
        return int(value)

    def wanted(self, column: str) -> int:
        """The whole number above 0 that has to be in the cell. Raises UnreadableCell."""
        value = self.whole(column)
        if not value:
            raise UnreadableCell(f"{column} is {'blank' if value is None else 0}; a run needs it")
        return value

    def degree(self, column: str) -> int | None:
        """The whole number above 0 in the cell; None where it is blank. Raises UnreadableCell."""
        value = self.whole(column)
        if value == 0:
            raise UnreadableCell(f"{column} = {self.text(column)!r} is not above 0; leave it blank if it is not known")
        return value

    @property
    def replicas(self) -> int:
        """Its data-parallel degree: of the GPUs that are left. Raises UnreadableCell where another one is printed."""
        gpus, printed = self.wanted("num_gpus"), self.degree("dp")
        model = math.prod(self.degree(key) or 1 for key in ("tp", "pp", "cp"))
        if printed and printed * model != gpus:
            raise UnreadableCell(
                f"dp = {printed}: times tp, pp and cp ({model}) that is {printed * model} GPUs, and num_gpus says "
                f"{gpus}; mend one of them, or leave dp blank"
            )
        return printed or max(1, gpus // model)

    def flag(self, column: str) -> bool | None:
        """Yes or no; None where it is blank. Raises UnreadableCell."""
        text = self.text(column).lower()
        if text in ("", "nan", "none", "unknown"):
            return None
        if text in ("1", "1.0", "true", "yes"):
            return True
        if text in ("0", "0.0", "false", "no"):
            return False
        raise UnreadableCell(f"{column} = {text!r} is neither yes (1) nor no (0)")

    @property
    def remarks(self) -> str:
        """All free text about how it was run."""
        return "; ".join(filter(None, (self.text("overlap_flags"), self.text("notes"))))

    @property
    def step_time(self) -> float | None:
        """Seconds per step: printed, or from the printed speed. Raises UnreadableCell."""
        for column in TIMES[:2]:
            if value := self._above_zero(column):
                return value
        sequences, tokens = self.wanted("global_batch"), self.wanted("seq_len")
        if speed := self._above_zero("tokens_per_s_per_gpu"):
            return sequences * tokens / speed / self.wanted("num_gpus")
        if speed := self._above_zero("samples_per_s"):
            return sequences / speed
        return None

    def _above_zero(self, column: str) -> float | None:
        value = self.number(column)
        if value is not None and value <= 0:
            raise UnreadableCell(f"{column} = {self.text(column)!r} is not above 0")
        return value

    @property
    def peak_memory(self) -> float | None:
        """Measured peak, bytes. GiB where the note says so, and of nvidia-smi. Raises UnreadableCell."""
        value = self._above_zero("peak_mem_GB")
        if value is None:
            return None
        note = self.text("mem_note")
        return value * (2**30 if "GiB" in note or "MiB" in note or "smi" in note else 1e9)

    @property
    def memory_measure(self) -> str:
        """With what the peak was measured: ``allocated``, ``reserved``, or that of the ``first`` rank only (PyTorch's
        counters), or ``smi``."""
        note = self.text("mem_note").lower()
        if "smi" in note:
            return "smi"
        if "alloc" in note or "max_memory" in note or "torch" in note:
            return "allocated"
        return "smi" if "reserved" not in note else "first" if "first rank" in note else "reserved"


Form = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Makes a row of the usual columns of one with columns of its own."""


def read_runs(path: str | Path = SHIPPED, form: Form = dict) -> Iterator[PublishedRun]:
    """The rows of a CSV file with the columns of the shipped one, or of which *form* makes those, in order.

    Columns that nobody reads are ignored, unless they look like one that is missing.
    Raises InvalidData for a file that cannot be read or lacks a column without which no row is a run.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            columns = [(name or "").strip() for name in table.fieldnames or ()]
            _check(path, [*columns, *form(dict.fromkeys(columns, ""))])
            if form is dict:
                _check_names(path, columns)
            for cells in table:
                if None in cells:
                    raise InvalidData(
                        f"{path}:{table.line_num}: more cells than the header has; quote cells that hold a ','"
                    )
                known = {(key or "").strip(): value for key, value in cells.items() if isinstance(value, str)}
                if any(value.strip() for value in known.values()):
                    yield PublishedRun(line=table.line_num, cells=form(known))
    except FileNotFoundError:
        raise InvalidData(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidData(f"{path}: cannot be read as a CSV file: {error}") from None


def _check(path: str | Path, columns: list[str]) -> None:
    """Refuse a table that is no table of runs."""
    missing = next((name for name in REQUIRED if name not in columns), None)
    if missing:
        near = nearest(missing, [column for column in columns if column and len(column) < len(missing) * 3])
        hint = f" (is {near!r} meant?)" if near else ""
        parted = (
            " (cells have to be parted by ',')" if len(set(columns)) == 1 and re.search("[;\t]", columns[0]) else ""
        )
        raise InvalidData(
            f"{path}: no column {missing!r}{parted or hint}; a table of runs needs {', '.join(REQUIRED)} and sizes "
            "of a model, or its name"
        )
    if not any(name in columns for name in TIMES):
        raise InvalidData(f"{path}: no column with a time; it needs one of {', '.join(TIMES)}")
    if "model_name" not in columns and (size := next((name for name in SIZES if name not in columns), None)):
        raise InvalidData(
            f"{path}: no column {size!r} and no model_name; it needs {', '.join(SIZES)}, or names of models"
        )


def _check_names(path: str | Path, columns: list[str]) -> None:
    """Refuse columns that are there twice, and those that nobody reads and that look like one that is missing."""
    if twice := next((name for k, name in enumerate(columns) if name and name in columns[:k]), None):
        raise InvalidData(f"{path}: the column {twice!r} is there twice; keep one")
    known = _known_columns()
    missing = [name for name in known if name not in columns]
    for name in columns:
        if name and name not in known and (meant := get_close_matches(name.lower(), missing, n=1, cutoff=MISSPELT)):
            raise InvalidData(f"{path}: unknown column {name!r}; is {meant[0]!r} meant? Rename it")


@cache
def _known_columns() -> tuple[str, ...]:
    with open(SHIPPED, newline="", encoding="utf-8-sig") as file:
        return (*next(csv.reader(file)), *FURTHER)
