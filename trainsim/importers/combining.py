"""
Several files as one scenario: what they say together, where they contradict each other, and what is still open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainsim.documents.catalogue import exists
from trainsim.documents.origin import Key, Origin, key_of, value_at
from trainsim.errors import ScenarioError, shorten
from trainsim.hardware.topology import OVERRIDES
from trainsim.importers.findings import Fact, Findings, Remark, flattened
from trainsim.importers.imported import Imported
from trainsim.importers.topology.finishing import finished
from trainsim.importers.topology.notebook import MACHINE
from trainsim.scenario.changes import changed, is_within
from trainsim.scenario.named import NAMED

if TYPE_CHECKING:
    pass

SECTIONS = ("name", "framework", "model", "cluster", "parallel", "pipeline", "sharding", "training", "network")
"""The order in which a scenario is written."""
SIZES = ("model.layers", "model.hidden")
BASES = ("model", *NAMED)
"""Keys whose value may be a name, from which a mapping starts."""
ALSO_SAID_BY = {
    "cluster.gpus": ("cluster.nodes", "cluster.on_nodes"),
    "training.gradient_accumulation": ("training.global_batch",),
    "training.global_batch": ("training.gradient_accumulation",),
}
"""Keys that say the same in another way: what a file only implies yields to them."""


def combined(findings: Sequence[Findings], changes: Mapping[str, Any] | None = None) -> Imported:
    """What *findings* say together, with *changes* of the user's own on top.

    Raises ScenarioError where two files contradict each other and the user does not decide.
    """
    changes = changes or {}
    facts = _without_named_model([fact for f in findings for fact in f.facts])
    facts = [fact for fact in facts if not any(_decided(o, changes) for o in ALSO_SAID_BY.get(fact.key, ()))]
    said: dict[str, Fact] = {}
    for fact in (f for f in facts if not f.weak):
        before = said.setdefault(fact.key, fact)
        if before.value != fact.value and not _decided(fact.key, changes):
            two = f"{before.key} is {_plain(before.value)}, but {fact.said} makes it {_plain(fact.value)}"
            raise ScenarioError(f"{before.said}: {two}; change one, or say which with --set {fact.key}=...")
    _check_sections(said.values())
    weak: dict[str, Fact] = {}
    for fact in (f for f in facts if f.weak):
        if not _yields(fact, said, changes):
            weak.setdefault(fact.key, fact)
    data: dict[str, Any] = {}
    for fact in [*said.values(), *weak.values()]:
        _put(data, key_of(fact.key), fact.value)
    data = _ordered(data)
    places: dict[Key, str] = {key_of(f.key): f.said for f in [*said.values(), *weak.values()] if f.said}
    if changes:
        data = changed(_opened(data, changes), changes)
        places = {k: v for k, v in places.items() if not _decided(".".join(map(str, k)), changes)}
    filled: tuple[Remark, ...] = ()
    if any(is_within(key, MACHINE) and key != MACHINE for key in [*said, *weak]):
        data, filled = _finished(data, findings)
    beside = [
        f"cluster.topology.{'.'.join(map(str, path))}" for key, path in OVERRIDES.items() if f"cluster.{key}" in changes
    ]
    own = [f for f in weak.values() if not _decided(f.key, [*changes, *beside])]
    defaults = tuple(Remark(key=f.key, words=f"{_plain(f.value)}: {f.source}", place=f.place) for f in own if f.source)
    told = [*said, *weak, *changes, *beside]
    stated = [r for f in findings for r in f.defaults if not (r.about and _is_told(r.about, told))]
    return Imported(
        scenario=data,
        findings=tuple(findings),
        defaults=(*stated, *defaults, *filled),
        origin=Origin(elsewhere=places),
    )


def _finished(data: dict[str, Any], findings: Sequence[Findings]) -> tuple[dict[str, Any], tuple[Remark, ...]]:
    """*data* with the machine that files describe key by key as complete as they make it, and what was filled in."""
    if not isinstance(value_at(data, key_of(MACHINE)), Mapping):
        return data, ()  # the user named another one
    machines = [f for f in findings if f.importer != "trainsim"]
    said_by = [f.file for f in machines if any(is_within(fact.key, MACHINE) for fact in f.facts)]
    if not said_by:
        return data, ()
    machine = finished(data["cluster"], [Path(file).name for file in said_by])
    return {**data, "cluster": machine.cluster}, machine.remarks


def _without_named_model(facts: Iterable[Fact]) -> list[Fact]:
    """A model's name yields to its sizes, where both are said."""
    facts = list(facts)
    sized = {fact.key for fact in facts} >= set(SIZES)
    return [fact for fact in facts if not (sized and fact.key in ("model", "model.base"))]


def _yields(fact: Fact, said: Mapping[str, Fact], changes: Mapping[str, Any]) -> bool:
    """Whether something that is only assumed is said by a file, or in another way. A name leaves its fields open, and
    they leave the name open."""
    if any(_decided(other, changes) or other in said for other in ALSO_SAID_BY.get(fact.key, ())):
        return True
    above = [key for key in said if is_within(fact.key, key) and key != fact.key]
    if any(not (key in BASES and isinstance(said[key].value, str)) for key in above):
        return True
    if fact.key in BASES and isinstance(fact.value, str):
        return fact.key in said or f"{fact.key}.base" in said
    return any(is_within(key, fact.key) for key in said)


def _is_told(key: str, told: Iterable[str]) -> bool:
    """Whether something is *told* of *key*, of a part of it, or of all that it belongs to."""
    return any(is_within(other, key) or is_within(key, other) for other in told)


def _check_sections(facts: Iterable[Fact]) -> None:
    """No key is a value for one file and a section for another."""
    by_key = {fact.key: fact for fact in facts}
    for key, fact in by_key.items():
        parts = key.split(".")
        for n in range(1, len(parts)):
            if (above := by_key.get(".".join(parts[:n]))) and above.key not in BASES:
                raise ScenarioError(f"{above.said}: {above.key} is {_plain(above.value)}, but {fact.said} sets {key}")


def _decided(key: str, changes: Iterable[str]) -> bool:
    return any(is_within(key, change) for change in changes)


def _put(data: dict[str, Any], key: Key, value: Any) -> None:
    """Set a leaf; a name that is already there becomes the base of a mapping."""
    here = data
    for part in key[:-1]:
        inner = here.get(str(part))
        if not isinstance(inner, dict):
            inner = {} if inner is None else {"base": inner}
            here[str(part)] = inner
        here = inner
    last = str(key[-1])
    if isinstance(here.get(last), dict) and not isinstance(value, Mapping):
        here[last]["base"] = value
    else:
        here[last] = value


def _ordered(data: dict[str, Any]) -> dict[str, Any]:
    """*data* in the order of a scenario file; a mapping with nothing but a base is that name."""
    known = [key for key in SECTIONS if key in data]
    out = {key: data[key] for key in [*known, *(key for key in data if key not in known)]}
    for key in ("model", "framework"):
        if isinstance(out.get(key), dict) and "base" in out[key]:
            base = out[key]["base"]
            out[key] = base if set(out[key]) == {"base"} else {"base": base, **out[key]}
    return out


def _opened(data: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """*data* with the section there that a change of the cluster needs."""
    if any(is_within(change, "cluster") for change in changes) and "cluster" not in data:
        return data | {"cluster": {}}
    return data


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else shorten(value)


def leaves_of(data: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The dotted keys and values of a scenario's mapping."""
    return [leaf for key, value in data.items() for leaf in flattened(str(key), value)]


def relative_to(path: Path, folder: Path) -> Path | None:
    """The file that another one in *folder* names as *path*, if there is one."""
    return next((file for file in (folder / path, path) if exists(file) and file.is_file()), None)
