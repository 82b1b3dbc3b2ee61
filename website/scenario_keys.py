"""The reference of scenarios: every key, from the schema, with an example from the scenarios that ship."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trainsim.hardware.topology import OVERRIDES
from trainsim.models.known import MODELS
from trainsim.scenario.model_section import ModelSpec
from trainsim.scenario.schema import ClusterSpec, ScenarioSpec
from trainsim.scenario.sharding_section import ShardingSpec, sharding_section
from trainsim.sharding import strategies
from website.descriptions import descriptions
from website.key import LONGEST, REQUIRED, Key, table, written
from website.links import ROOT
from website.words import of_type, section_in

INTRO = """# Every key of a scenario

Made from the schema that scenarios are read with. A path such as `training.micro_batch` is also what `--set`, `--grid`
and `Scenario.replace` take. [The scenario file](../scenario.md) says more about each section, and what goes together.
`trainsim run` prints what was derived for keys that are left out, and from what. Where a name stands behind an example,
it is from that scenario or model, which ships.
"""
EXAMPLES: Mapping[str, Any] = yaml.safe_load((Path(__file__).parent / "examples.yaml").read_text(encoding="utf-8"))
"""Values for keys that no scenario or model has which ships."""


def page() -> str:
    """The page, as Markdown."""
    parts = [INTRO]
    for title, kind, keys in sections():
        parts += [f"## {title}", _about(kind), table(keys, examples=True)]
    return "\n\n".join(parts) + "\n"


def sections() -> Iterator[tuple[str, type[BaseModel], list[Key]]]:
    """(Path, class, keys) of the scenario as a whole and of every section in it."""
    yield "The whole", ScenarioSpec, list(keys_of(ScenarioSpec, ""))
    yield from _below(ScenarioSpec, "")


def keys_of(kind: type[BaseModel], path: str) -> Iterator[Key]:
    """The keys of a section at *path*."""
    said = _said(kind)
    for name, field in kind.model_fields.items():
        key = field.alias or name
        words, unit = of_type(field)
        full = f"{path}.{key}" if path else key
        yield Key(full, words, unit, _default(field), said.get(name, ""), _example(full, field))
    if kind is ClusterSpec:
        for name, place in OVERRIDES.items():
            target = ".".join(map(str, place))
            meaning = f"in the place of [`{target}`](topology-keys.md#{target}) of the topology file"
            yield Key(f"{path}.{name}", "as there", "", "the file's", meaning, _example(f"{path}.{name}", None))


def _below(kind: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel], list[Key]]]:
    for name, field in kind.model_fields.items():
        inner = section_in(field.annotation) or next((s for s in map(section_in, field.metadata) if s), None)
        if inner is None or not issubclass(inner, BaseModel):
            continue
        inner = sharding_section() if inner is ShardingSpec else inner
        full = f"{path}.{field.alias or name}" if path else name
        full += "[]" if get_origin(field.annotation) is tuple else ""
        yield full, inner, list(keys_of(inner, full))
        yield from _below(inner, full)


def _said(kind: type[BaseModel]) -> Mapping[str, str]:
    """What is said of the keys of a section; options of sharding strategies say it themselves."""
    options = {o.name: o.doc for s in strategies.values() for o in s.options} if issubclass(kind, ShardingSpec) else {}
    return {**options, **descriptions(kind)}


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return REQUIRED
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel) or value in ({}, ()):
        return "empty"
    if value is None:
        return "left out"
    return f"`{written(list(value) if isinstance(value, tuple) else value)}`"


def _example(path: str, field: FieldInfo | None) -> str:
    if used := _used(path):
        return used
    key = path.rpartition(".")[2]
    value = EXAMPLES.get(path)
    if value is None and field is not None:
        value = next((v for v in _words_of(field.annotation) if v != field.default), None)
    return "" if value is None else f"`{key}: {written(value)}`"


def _words_of(hint: Any) -> Iterator[Any]:
    if hint is bool:
        yield from (True, False)
    elif get_origin(hint) is Literal:
        yield from get_args(hint)
    elif section_in(hint) is None and get_origin(hint) is not tuple:
        for one in get_args(hint):
            yield from _words_of(one)


def _used(path: str) -> str:
    """The first scenario that ships with a value at *path*, and that value."""
    for name, data in _shipped().items():
        for value in _at(data, path.split(".")):
            text = written(value)
            if len(text) <= LONGEST and value is not None:
                return f"`{path.rpartition('.')[2].removesuffix('[]')}: {text}` in {name}"
    return ""


def _at(data: Any, path: list[str]) -> Iterator[Any]:
    if not path:
        yield data
    elif isinstance(data, list):
        for one in data:
            yield from _at(one, path)
    elif isinstance(data, Mapping) and (name := path[0].removesuffix("[]")) in data:
        yield from _at(data[name], path[1:])


@cache
def _shipped() -> Mapping[str, Any]:
    """Scenarios, and models as the section of a scenario that they are, by name."""
    found = {path.stem: path for path in sorted((ROOT / "scenarios").glob("*.yaml"))}
    scenarios = {name: yaml.safe_load(path.read_text(encoding="utf-8")) for name, path in found.items()}
    models = {name: {"model": MODELS.find(name).data} for name in MODELS.names()}
    return {**scenarios, **models}


def _about(kind: type[BaseModel]) -> str:
    text = (kind.__doc__ or "").replace("``", "`")
    more = (
        " Model files of the catalogue have the same keys, and `description` and `source`." if kind is ModelSpec else ""
    )
    return " ".join(text.split()) + more
