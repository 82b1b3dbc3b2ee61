"""What pydantic found wrong with a scenario, in the words of the person who wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from trainsim.documents.origin import Key, Origin, dotted, value_at
from trainsim.errors import ScenarioError, nearest, shorten
from trainsim.hardware.topology import OVERRIDES
from trainsim.scenario.schema import ScenarioSpec
from trainsim.scenario.sharding_section import ShardingSpec, sharding_section

MOST_SHOWN = 8
TAGS = ("<name>", "<mapping>", "<list>", "<number>")
"""Names of the schema for the forms that a value may have; no keys."""
_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a name",
    "tuple": "a list",
    "dict": "a mapping (key: value lines)",
    "model": "a mapping (key: value lines)",
}


def check_schema(data: Mapping[str, Any], origin: Origin) -> ScenarioSpec:
    """*data* as a checked scenario. Raises ScenarioError that lists what is wrong, a line each."""
    try:
        return ScenarioSpec.model_validate(dict(data))
    except ValidationError as error:
        lines = _lines(error.errors(include_url=False), data, origin)
        more = [f"... and {len(lines) - MOST_SHOWN} more"] if len(lines) > MOST_SHOWN else []
        reason = _lines(error.errors(include_url=False), data, Origin())[0]
        raise ScenarioError("\n".join(lines[:MOST_SHOWN] + more), reason=reason) from None


def _lines(errors: Iterable[ErrorDetails], data: Mapping[str, Any], origin: Origin) -> list[str]:
    """A line for each value that is wrong; of one that may have several forms, all that it may be."""
    wanted: dict[str, list[str]] = {}
    for details in errors:
        place, what = _line(details, data, origin)
        wanted.setdefault(place, []).append(what)
    lines = []
    for place, every in wanted.items():
        forms = list(dict.fromkeys(what.removeprefix("expected ") for what in every if what.startswith("expected ")))
        others = [what for what in dict.fromkeys(every) if not what.startswith("expected ")]
        lines += [f"{place}: {what}" for what in (*([f"expected {' or '.join(forms)}"] if forms else []), *others)]
    return lines


def _line(details: ErrorDetails, data: Mapping[str, Any], origin: Origin) -> tuple[str, str]:
    """``file:line: key = value``, without the place where *origin* knows none, and what is wanted."""
    key: Key = tuple(part for part in details["loc"] if part not in TAGS)
    key = _existing(key, data)
    value = value_at(data, key)
    shown = "" if details["type"] in ("extra_forbidden", "missing") else f" = {shorten(value)}"
    return f"{origin.place(key)}{dotted(key) or 'the scenario'}{shown}", _what(details, key)


def _existing(key: Key, data: Mapping[str, Any]) -> Key:
    """*key* without the names that pydantic adds for the members of a union."""
    for n in range(len(key)):
        parent = value_at(data, key[:n])
        if n and not isinstance(parent, Mapping | list | tuple):
            return key[:n]
    return key


def _what(details: ErrorDetails, key: Key) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "extra_forbidden":
        return unknown_key(key)
    if kind == "missing":
        return "is missing" + _EXAMPLES.get(dotted(key), "")
    if kind == "literal_error":
        return _options(str(context.get("expected", "")), details["input"])
    if kind in ("greater_than", "greater_than_equal", "less_than_equal"):
        word = {"greater_than": "more than", "greater_than_equal": "at least", "less_than_equal": "at most"}[kind]
        return f"must be {word} {context.get('gt', context.get('ge', context.get('le')))}"
    if kind == "value_error":
        return str(context.get("error", details["msg"]))
    if kind == "union_tag_not_found":
        return _FORMS.get(str(key[-1]), "expected a name or a mapping")
    if kind in ("finite_number", "int_parsing_size"):
        return "is not a number that makes sense here"
    wanted = _WANTED.get(kind.split("_")[0])
    if wanted == _WANTED["model"] and known_keys(key):
        wanted = f"{wanted} of {', '.join(known_keys(key))}"
    return f"expected {wanted}" if wanted else details["msg"]


_FORMS = {
    "layout": "expected a list of layers per virtual stage",
    "placement": "expected packed, spread, random, {random: 7}, the path of a host list, or its lines",
}
_EXAMPLES = {
    "model": "; add for example `model: llama-3-8b`",
    "cluster": "; add for example `cluster: {topology: dgx_h100, nodes: 1}`",
    "cluster.topology": "; add for example `topology: dgx_h100`",
}


def _options(expected: str, value: object) -> str:
    options = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    near = nearest(str(value), options)
    hint = f"did you mean {near!r}? " if near else ""
    return f"{hint}It can be {', '.join(options)}" if hint else f"can be {', '.join(options)}"


def known_keys(key: Key) -> tuple[str, ...]:
    """The keys that the schema knows in the mapping at *key*."""
    section: type[BaseModel] | None = ScenarioSpec
    for part in key:
        if section is None or isinstance(part, int):
            continue
        known = section.model_fields.get(part)
        section = _section(known.annotation) if known else None
        section = sharding_section() if section is ShardingSpec else section
    return tuple(section.model_fields) if section else ()


def _section(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((section for arg in get_args(annotation) if (section := _section(arg))), None)


def unknown_key(key: Key) -> str:
    """The message for a key that nobody knows: the nearest one, or where the word is known, or all."""
    known = known_keys(key[:-1])
    word = str(key[-1])
    near = nearest(word, known)
    if near:
        return f"unknown key; did you mean {near!r}?"
    if len(key) == 2 and key[0] == "cluster":
        known = (*known, *(name for name in OVERRIDES if name not in known))
    homes = [name for name in ScenarioSpec.model_fields if word in known_keys((name,)) and name != "model"]
    if homes:
        return f"unknown key here; {word} belongs under {homes[0]}:"
    return f"unknown key; known here: {', '.join(known)}"
