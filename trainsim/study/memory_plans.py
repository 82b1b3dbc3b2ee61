"""
The ways to train, and the cards, that ``trainsim memory`` puts side by side: a data file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from trainsim.documents.building import build, keys_of
from trainsim.documents.catalogue import COMMON, shipped
from trainsim.documents.document import Document
from trainsim.documents.part import DocumentPart

ADAPTER = {"rank": 16, "targets": ["q", "k", "v", "o"]}
"""The adapters of a plan, where the scenario has none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """A way to train: ``changes`` of a scenario at dotted paths; with ``lora`` adapters, on weights of ``base_dtype``.

    ``several``: it shares states between GPUs, so that it says nothing where there is one.
    """

    title: str
    changes: dict[str, Any] = field(default_factory=dict)
    lora: bool = False
    base_dtype: str = ""
    several: bool = False

    def values(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """What to change in a scenario of this *model*.

        >>> MemoryPlan(title="QLoRA", lora=True, base_dtype="nf4").values({})["model.lora"]["base_dtype"]
        'nf4'
        """
        if not self.lora:
            return dict(self.changes)
        given = {key: value for key, value in (model.get("lora") or {}).items() if key != "base_dtype"}
        stored = {"base_dtype": self.base_dtype} if self.base_dtype else {}
        return {**self.changes, "model.lora": {**ADAPTER, **given, **stored}}


def plans() -> tuple[MemoryPlan, ...]:
    """All of them, in the order of the file.

    >>> plans()[0].title
    'as given'
    """
    return _plans(shipped("study", "memory_plans"))


def usual_cards() -> tuple[str, ...]:
    """The GPUs that are compared where nobody names any."""
    cards = shipped("study", "memory_plans").data["cards"]
    return tuple(map(str, cards))


@lru_cache(maxsize=4)
def _plans(document: Document) -> tuple[MemoryPlan, ...]:
    top = DocumentPart.open(document, (), document.data, [*COMMON, "cards", "plans"])
    listed = top.section("plans", document.data["plans"])
    known = [key for key in keys_of(MemoryPlan) if key != "title"]
    return tuple(
        build(MemoryPlan, DocumentPart.open(document, ("plans", title), data, known), title=title)
        for title, data in listed.data.items()
    )
