"""
Tables of words beside the importers: what other tools call things, as data.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from trainsim.documents.document import read_file


@cache
def table(name: str) -> Mapping[str, Any]:
    """The table ``formats/NAME.yaml``.

    >>> table("torchtitan")["precisions"]["bfloat16"]
    'bf16'
    """
    path = Path(__file__).parent / "formats" / f"{name}.yaml"
    return read_file(path, shown=path.name).data


def worded(words: Mapping[str, Any], word: str) -> tuple[str, Any] | None:
    """The entry of *words* that is spelt like *word*, in any case.

    >>> worded({"8B": 1}, "8b"), worded({"8B": 1}, "9b")
    (('8B', 1), None)
    """
    return next((entry for entry in words.items() if entry[0].casefold() == word.casefold()), None)
