"""
What files of other tools say together: a scenario or a machine, remarks about keys, and what is still missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainsim.documents.origin import Origin, key_of, value_at
from trainsim.errors import ScenarioError
from trainsim.hardware.cluster import load_topology
from trainsim.hardware.topology import OVERRIDES
from trainsim.importers.findings import Findings, Observation, Remark
from trainsim.importers.topology.finishing import missing
from trainsim.scenario.changes import is_within

if TYPE_CHECKING:
    from trainsim.hardware.cluster import Cluster
    from trainsim.scenario.scenario import Scenario

NEEDED: Mapping[str, str] = {
    "model": "add its config.json, or --set model=NAME (trainsim list models)",
    "cluster.topology": "add --set cluster.topology=NAME (trainsim list topologies)",
}
"""What a scenario needs, and how to say it."""
HOW_MANY = " and --set cluster.gpus=N"
MODEL_NEEDS = ("layers", "hidden", "heads", "vocab")
"""What a model needs that is no name of the catalogue and starts from none."""
KINDS = ("used", "ignored", "warnings", "defaults")
"""Kinds of remarks."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Imported:
    """What files of other tools say together.

    ``scenario`` is a mapping as a scenario file has it, ``missing`` what it lacks to be one; ``used``, ``ignored``,
    ``warnings`` and ``defaults`` are remarks about keys.
    """

    scenario: Mapping[str, Any]
    findings: tuple[Findings, ...]
    defaults: tuple[Remark, ...]
    origin: Origin

    @property
    def files(self) -> dict[str, str]:
        """The importer of each file."""
        return {findings.file: findings.importer for findings in self.findings}

    @property
    def used(self) -> tuple[Remark, ...]:
        """Keys that became something."""
        return tuple(remark for findings in self.findings for remark in findings.used)

    @property
    def ignored(self) -> tuple[Remark, ...]:
        """Keys without effect on speed and memory."""
        return tuple(remark for findings in self.findings for remark in findings.ignored)

    @property
    def warnings(self) -> tuple[Remark, ...]:
        """Keys that would have an effect and are not modelled, and keys that nobody knows."""
        return tuple(remark for findings in self.findings for remark in findings.warnings)

    @property
    def topology(self) -> dict[str, Any] | None:
        """The machine as a topology file has it, where files describe one key by key."""
        machine = value_at(self.scenario, ("cluster", "topology"))
        nodes = value_at(self.scenario, ("cluster", "nodes"))
        return {**machine, **({} if nodes is None else {"nodes": nodes})} if isinstance(machine, Mapping) else None

    @property
    def is_machine(self) -> bool:
        """Whether the files describe a machine and nothing else."""
        return self.topology is not None and set(self.scenario) == {"cluster"}

    @cached_property
    def cluster(self) -> Cluster:
        """The machine. Raises ScenarioError that says what is missing, and what a topology raises."""
        lacks = {key: way for key, way in self.missing.items() if is_within(key, "cluster")}
        if lacks or self.topology is None:
            needs = "; ".join(f"{key}: {way}" for key, way in lacks.items())
            raise ScenarioError(f"{' and '.join(self.files)}: {needs or 'no machine is described key by key'}")
        overrides = {k: v for k, v in self.scenario["cluster"].items() if k in OVERRIDES and k != "nodes"}
        return load_topology(self.topology, overrides=overrides)

    @cached_property
    def compared(self) -> tuple[Remark, ...]:
        """What files tell of the machine that is no key of it, held against what it is here; nothing as long as
        something of it is missing."""
        return tuple(remark for one in self._observed for remark in one.against(self.cluster))

    @cached_property
    def contradicted(self) -> tuple[Remark, ...]:
        """The part of `compared` that nobody should miss: what another file of the machine contradicts."""
        return tuple(remark for one in self._observed for remark in one.contradicted(self.cluster))

    @property
    def _observed(self) -> tuple[Observation, ...]:
        if self.topology is None or any(is_within(key, "cluster") for key in self.missing):
            return ()
        return tuple(one for findings in self.findings for one in findings.observed)

    @property
    def missing(self) -> dict[str, str]:
        """What a scenario needs beyond this, and how to say it; of files of a machine alone, what the machine needs."""
        needed = {key: way for key, way in NEEDED.items() if value_at(self.scenario, key_of(key)) is None}
        if self.topology is not None and not isinstance(self.scenario["cluster"]["topology"], str):
            needed |= missing(self.scenario["cluster"])
        if self.is_machine:
            return {key: way for key, way in needed.items() if key != "model"}
        if "cluster.topology" in needed and not ({"gpus", "nodes"} & set(self.scenario.get("cluster") or {})):
            needed["cluster.topology"] += HOW_MANY
        model = self.scenario.get("model")
        if isinstance(model, Mapping) and "base" not in model and not _is_known_model(model.get("name")):
            open_ = [key for key in MODEL_NEEDS if model.get(key) is None]
            whole = {"model": "add its config.json, or --set model.base=NAME (trainsim list models)"}
            sizes = {f"model.{key}": f"add --set model.{key}=N" for key in open_}
            needed |= whole if len(open_) == len(MODEL_NEEDS) else sizes
        return needed

    @cached_property
    def complete(self) -> Scenario:
        """The scenario. Raises ScenarioError that says what is missing, and what a scenario raises."""
        from trainsim.scenario.scenario import Scenario

        if self.is_machine:
            raise ScenarioError(f"{' and '.join(self.files)}: a machine and no job: {NEEDED['model']}")
        if self.missing:
            needs = "; ".join(f"no file sets {key}: {way}" for key, way in self.missing.items())
            raise ScenarioError(f"{' and '.join(self.files)}: {needs}")
        return Scenario(dict(self.scenario), self.origin)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        remarks = {kind: [r.to_dict() for r in getattr(self, kind)] for kind in (*KINDS, "compared")}
        return {"files": self.files, "scenario": dict(self.scenario), **remarks, "missing": self.missing}

    def to_yaml(self) -> str:
        """A scenario file, or of a machine alone a topology file, with what is missing and what is not modelled in
        comments."""
        lines = [f"# from {file} ({importer})" for file, importer in self.files.items()]
        lines += [f"# missing: {key}: {way}" for key, way in self.missing.items()]
        lines += [f"# {remark.place}: {remark.key}: {remark.words}" for remark in self.warnings]
        body = written(self)
        return "\n".join([*(" ".join(line.split()) for line in lines), body])

    def __repr__(self) -> str:
        return f"<Imported {' + '.join(self.files)}>"


def written(imported: Imported) -> str:
    """What files say together as YAML, without remarks; a machine with a line for each of its links."""
    import yaml

    if imported.is_machine:
        return str(
            yaml.safe_dump(imported.topology, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
        )
    return str(yaml.safe_dump(dict(imported.scenario), sort_keys=False, allow_unicode=True))


def _is_known_model(name: Any) -> bool:
    from trainsim.models.known import model_names

    return isinstance(name, str) and name in model_names()
