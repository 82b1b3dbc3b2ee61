"""Columns of whole numbers as text: each in the narrowest type that holds it exactly."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt

TYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "f8")
"""What a column may consist of, the narrowest first: integers of so many bytes, and numbers that are exact up to 2**53;
little-endian."""


def packed(values: npt.ArrayLike) -> dict[str, Any]:
    """Whole numbers (at most 2**53) for a page: one number where all are alike, else a typed array in base64.

    >>> packed([7, 7, 7]), packed([])
    ({'size': 3, 'all': 7}, {'size': 0, 'all': 0})
    >>> packed([1, 300])
    {'size': 2, 'type': 'u2', 'data': 'AQAsAQ=='}
    """
    column = np.asarray(values)
    if not len(column):
        return {"size": 0, "all": 0}
    low, high = int(column.min()), int(column.max())
    if low == high:
        return {"size": len(column), "all": low}
    kind = next(kind for kind in TYPES if _holds(kind, low, high))
    return {"size": len(column), "type": kind, "data": _text(column, kind)}


def packed_parts(values: npt.ArrayLike) -> dict[str, Any]:
    """Any numbers for a page, to seven digits.

    >>> packed_parts([0.5, 0.25])
    {'size': 2, 'type': 'f4', 'data': 'AAAAPwAAgD4='}
    """
    column = np.asarray(values, np.float64)
    if len(column) and column.min() == column.max():
        return {"size": len(column), "all": float(column[0])}
    return {"size": len(column), "type": "f4", "data": _text(column, "f4")}


def whole_nanoseconds(seconds: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Times of a page: nanoseconds of *seconds*.

    >>> whole_nanoseconds([0.5e-6, 2.6e-9]).tolist()
    [500, 3]
    """
    return np.rint(np.asarray(seconds) * 1e9).astype(np.int64)


def _holds(kind: str, low: int, high: int) -> bool:
    if kind == "f8":
        return True
    limits = np.iinfo(np.dtype(kind))
    return bool(limits.min <= low and high <= limits.max)


def _text(column: npt.NDArray[Any], kind: str) -> str:
    return base64.b64encode(column.astype(f"<{kind}").tobytes()).decode()
