"""
What a file says: facts of a scenario, and a remark about each key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from trainsim.hardware.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A value of the scenario at a dotted ``key``, as key ``source`` of a file says at ``place`` (file:line).

    A ``weak`` one is what the tool takes by itself where nothing is said; it yields to what another file says.
    """

    key: str
    value: Any
    place: str = ""
    source: str = ""
    weak: bool = False

    @property
    def said(self) -> str:
        """Where it comes from, for messages: ``ds.json:3: train_batch_size``."""
        return f"{self.place}: {self.source}" if self.place and self.source else self.place or self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A key of a file, where it stands, and what becomes of it; of one that leaves a key of the scenario open, which
    it is ``about``: nothing has to be told where somebody else says it."""

    key: str
    words: str
    place: str = ""
    about: str = ""

    def to_dict(self) -> dict[str, str]:
        """As a mapping, for JSON."""
        return {"key": self.key, "place": self.place, "words": self.words}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Another file that a file names: ``path`` from its own folder, and what it would say."""

    path: Path
    key: str
    place: str
    words: str


class Observation(Protocol):
    """What a file tells of a machine that becomes no key of it, to be held against the machine once that is known."""

    def against(self, cluster: Cluster) -> tuple[Remark, ...]:
        """How *cluster* agrees with it."""
        ...

    def contradicted(self, cluster: Cluster) -> tuple[Remark, ...]:
        """Where *cluster* contradicts it, which nobody should miss."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that one file says.

    ``used`` are the keys that became something, ``ignored`` those without effect on speed and memory, ``warnings``
    those that would have one and are not modelled, or that nobody knows, ``defaults`` what the tool takes where the
    file says nothing. ``observed`` is what the machine is compared with.
    """

    importer: str
    file: str
    facts: tuple[Fact, ...] = ()
    used: tuple[Remark, ...] = ()
    ignored: tuple[Remark, ...] = ()
    warnings: tuple[Remark, ...] = ()
    defaults: tuple[Remark, ...] = ()
    references: tuple[Reference, ...] = ()
    observed: tuple[Observation, ...] = ()


def flattened(key: str, value: Any) -> list[tuple[str, Any]]:
    """The leaves of *value* at a dotted *key*: mappings are taken apart.

    >>> flattened("model", {"layers": 2, "moe": {"experts": 8}})
    [('model.layers', 2), ('model.moe.experts', 8)]
    """
    if not isinstance(value, Mapping) or not value:
        return [(key, value)]
    return [leaf for name, inner in value.items() for leaf in flattened(f"{key}.{name}", inner)]
