"""What a process group is for: tensor, pipeline, data parallelism, ..., by its name, its ranks and what it does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from trainsim.contracts.instructions import SEND
from trainsim.measured.collective_records import CollectiveRecord, ranks_of
from trainsim.measured.trace_events import mapping

WORDS = (
    ("dp", r"edp|expert.*data|data.*expert|expt_dp"),
    ("ep", r"ep|expert|moe"),
    ("cp", r"cp|context|ring|ulysses|sequence"),
    ("tp", r"tp|tensor|megatron_mp"),
    ("pp", r"pp|pipe|pipeline|stage"),
    ("dp", r"dp|ddp|fsdp|hsdp|data|replica|replicas|replicate|shard|zero|embedding|embd"),
)
"""Words in names and descriptions of groups, in the order in which they are looked for."""
_PATTERNS = [(kind, re.compile(rf"(?<![a-z])(?:{words})(?![a-z])", re.IGNORECASE)) for kind, words in WORDS]
LONG = [(kind, re.compile("|".join(w for w in words.split("|") if len(w) > 3), re.IGNORECASE)) for kind, words in WORDS]
"""The same words inside of others, where they are long enough to be no chance."""


def kind_of_name(text: str) -> str:
    """The kind of parallelism that the name or description of a group tells; nothing if it tells none.

    >>> kind_of_name("TENSOR_MODEL_PARALLEL_GROUP"), kind_of_name("mesh_dp_shard"), kind_of_name("default_pg")
    ('tp', 'dp', '')
    >>> kind_of_name("EXPERT_DATA_PARALLEL_GROUP"), kind_of_name("dp-without-cp"), kind_of_name("pp-forward")
    ('dp', 'dp', 'pp')
    """
    words = re.sub(r"-(?:with|without)-\w+|_with_cp", "", text.lower()).replace("_", " ")
    for patterns in (_PATTERNS, LONG):
        for kind, pattern in patterns:
            if pattern.search(words):
                return kind
    return ""


class ProcessGroups:
    """The groups that files list; which kind of communication each one carries."""

    def __init__(self, infos: Iterable[Mapping[str, Any]]):
        self.about: dict[str, str] = {}
        self.members: dict[str, tuple[int, ...]] = {}
        self.world = 0
        pipelines: list[set[int]] = []
        for info in infos:
            listed = info.get("pg_config")
            size = info.get("world_size")
            self.world = max(self.world, size if isinstance(size, int) else 0)
            for entry in map(mapping, listed if isinstance(listed, list) else []):
                name = str(entry.get("pg_name", ""))
                about, ranks = str(entry.get("pg_desc", "")), ranks_of(entry.get("ranks"))
                self.about.setdefault(name, about)
                self.members.setdefault(name, ranks)
                if kind_of_name(about or name) == "pp" and len(ranks) > 1:
                    pipelines.append(set(ranks))
        self.pipelines = _joined(pipelines)

    def kind(self, record: CollectiveRecord) -> str:
        """What the collective is for."""
        named = kind_of_name(record.about or self.about.get(record.group, "")) or kind_of_name(record.group)
        if record.operation == SEND:
            return named if named in ("cp", "ep", "pp") else "pp"
        if named:
            return named
        if record.operation == "all_to_all":
            return "ep"
        return self._by_ranks(record)

    def _by_ranks(self, record: CollectiveRecord) -> str:
        """Where nothing has a name: ranks next to each other, where other groups reach across them, share layers."""
        ranks = record.ranks or self.members.get(record.group, ())
        world = self.world or len(ranks)
        others = [m for m in self.members.values() if 1 < len(m) < world]
        across = any(m[1] - m[0] > 1 for m in others)
        next_to = 1 < len(ranks) < world and ranks[-1] - ranks[0] == len(ranks) - 1
        return "tp" if next_to and across else "dp"

    def stage(self, rank: int) -> int:
        """The place of a rank in its pipeline, where groups that are listed tell."""
        return next((ranks.index(rank) for ranks in self.pipelines if rank in ranks), 0)


def _joined(groups: Iterable[set[int]]) -> list[list[int]]:
    """Groups that share ranks as one, in rising order: pairs of neighbours are a pipeline together."""
    out: list[set[int]] = []
    for group in groups:
        apart = [other for other in out if not other & group]
        out = [*apart, group.union(*(other for other in out if other & group))]
    return [sorted(ranks) for ranks in out]
