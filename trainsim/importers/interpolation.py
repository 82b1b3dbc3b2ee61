"""
``${...}`` in YAML files: values that stand elsewhere in the file, and sums of them, as OmegaConf (Hydra, NeMo,
llm-foundry) and its usual resolvers mean them. Nothing is executed and no environment is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainsim.documents.document import Document, value_of
from trainsim.documents.origin import value_at
from trainsim.importers.arithmetic import NoSum, Value, combined, evaluate

DEEPEST = 10
LONGEST = 1 << 16
MOST_VALUES = 20_000
SUMS = {
    "multiply": "*", "product": "*", "mul": "*", "prod": "*", "add": "+", "sum": "+", "plus": "+", "subtract": "-",
    "sub": "-", "minus": "-", "divide": "/", "div": "/", "int_div": "//", "floordiv": "//", "floor_div": "//",
    "intdiv": "//", "mod": "%", "pow": "**",
}  # fmt: skip
"""Resolvers of arithmetic that projects register, and what they are."""
CHOICES = {"min": min, "max": max}


class Open(ValueError):
    """An expression whose value is not in the file; the message says why."""


@dataclass(frozen=True)
class Interpolated:
    """A document with values in the place of its expressions; those of ``unknown`` (dotted key: why) became null."""

    document: Document
    unknown: Mapping[str, str]


def interpolated(document: Document, *sections: str) -> Interpolated:
    """*document* with the value of every ``${...}`` in it.

    A name is looked up from the root, one that starts with a dot from where it stands, then in each of *sections*
    (llm-foundry's ``variables``). What needs an environment, a resolver that nobody knows, or itself, is unknown.

    >>> from trainsim.documents.document import read_text
    >>> text = "{tp: 8, m: {pp: 2, k: '${.pp}'}, world: '${multiply:${tp},${m.pp}}', home: '${oc.env:HOME}'}"
    >>> found = interpolated(read_text(text, file="x.yaml"))
    >>> found.document.data["world"], found.document.data["m"]["k"], found.unknown
    (16, 2, {'home': '${oc.env:HOME}: an environment variable (HOME) known only to the job'})
    """
    walk = _Interpolator(document.data, sections)
    data = walk.known(document.data, ())
    return Interpolated(replace(document, data=data), walk.unknown)


class _Interpolator:
    """One pass over a document; ``budget`` bounds how much expressions may grow."""

    def __init__(self, data: Mapping[str, Any], sections: Sequence[str]):
        self.data, self.sections = data, sections
        self.unknown: dict[str, str] = {}
        self.budget = MOST_VALUES
        self.done: dict[tuple[str, tuple[str | int, ...]], Any] = {}
        self.pending: list[str] = []

    def known(self, value: Any, key: tuple[str | int, ...]) -> Any:
        """*value*, which stands at *key*, with values for expressions; null where there is none."""
        if isinstance(value, Mapping):
            return {name: self.known(inner, (*key, name)) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.known(inner, (*key, k)) for k, inner in enumerate(value)]
        if not isinstance(value, str) or ("${" not in value and value != "???"):
            return value
        try:
            if value == "???":
                raise Open("has to be given")
            return self.text(value, key)
        except Open as reason:
            self.unknown[".".join(map(str, key))] = f"{value}: {reason}" if len(value) < 80 else str(reason)
            return None

    def text(self, text: str, key: tuple[str | int, ...]) -> Any:
        """What *text* at *key* means: a value if it is one expression, else a text with values in it."""
        self._spend()
        parts = pieces(text)
        if len(parts) == 1 and not isinstance(parts[0], str):
            return self.expression(parts[0][0], key)
        words = [part if isinstance(part, str) else self.expression(part[0], key) for part in parts]
        if any(isinstance(word, Mapping | list) for word in words):
            raise Open("a section inside a string")
        joined = "".join(map(_spelled, words))
        if len(joined) > LONGEST:
            raise Open("a text that is too long")
        return joined

    def expression(self, inside: str, key: tuple[str | int, ...]) -> Any:
        """The value of ``${inside}``."""
        mark = (inside, key[:-1])
        if mark in self.done:
            return self._weighed(self.done[mark])
        if inside in self.pending or len(self.pending) == DEEPEST:
            raise Open("it refers to itself" if inside in self.pending else "too many nested expressions")
        self.pending.append(inside)
        try:
            name, colon, rest = _head(inside)
            value = self.resolved(name, rest, key) if colon else self.node(self._plain(inside, key), key)
        finally:
            self.pending.pop()
        self.done[mark] = value
        return value

    def node(self, name: str, key: tuple[str | int, ...]) -> Any:
        """The value that stands at *name*."""
        path = _path(name, key)
        for above in ((), *([((section,)) for section in self.sections] if not name.startswith(".") else [])):
            full = (*above, *path)
            if _stands(self.data, full):
                return self._copy(value_at(self.data, full), full)
        raise Open(f"nothing is called {name}")

    def _copy(self, value: Any, key: tuple[str | int, ...]) -> Any:
        """*value* with values for its expressions, counted, for it stands there once more."""
        self._spend()
        if isinstance(value, Mapping):
            return {name: self._copy(inner, (*key, name)) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._copy(inner, (*key, k)) for k, inner in enumerate(value)]
        return self.text(value, key) if isinstance(value, str) and "${" in value else value

    def _weighed(self, value: Any) -> Any:
        """*value*, counted: it will stand there once more."""
        stack = [value]
        while stack:
            self._spend()
            here = stack.pop()
            stack += here.values() if isinstance(here, Mapping) else here if isinstance(here, list) else ()
        return value

    def resolved(self, name: str, rest: str, key: tuple[str | int, ...]) -> Any:
        """What the resolver *name* makes of its arguments."""
        name = name.rpartition(".")[2] if name.startswith("math.") else name
        if name in ("eval", "math"):
            return _evaluated(self._plain(rest, key))
        texts = _arguments(rest)
        if name in ("oc.env", "env"):
            if len(texts) > 1:
                return self._value(texts[1], key)
            raise Open(f"an environment variable ({texts[0]}) known only to the job")
        if name == "oc.select":
            try:
                return self.node(self._plain(texts[0], key), key)
            except Open:
                return self._value(texts[1], key) if len(texts) > 1 else None
        if name in ("oc.decode", "int", "float", "str"):
            return _cast(name, self._value(texts[0], key))
        if name in SUMS or name in CHOICES:
            return _summed(name, [self._value(text, key) for text in texts])
        raise Open(f"unknown resolver {name}")

    def _value(self, text: str, key: tuple[str | int, ...]) -> Any:
        """An argument of a resolver."""
        return self.text(text, key) if "${" in text else value_of(text)

    def _plain(self, text: str, key: tuple[str | int, ...]) -> str:
        """*text* with expressions inside an expression replaced."""
        if "${" not in text:
            return text.strip()
        return str(self.text(f"{text} ", key)).strip()

    def _spend(self) -> None:
        self.budget -= 1
        if self.budget < 0:
            raise Open("too many expressions")


def pieces(text: str) -> list[str | tuple[str]]:
    """*text* taken apart: what stands in ``${}`` as a tuple of one. Raises Open where a brace is not closed.

    >>> pieces("a-${b.${c}}-d")
    ['a-', ('b.${c}',), '-d']
    """
    found: list[str | tuple[str]] = []
    at = 0
    while (start := text.find("${", at)) >= 0:
        if text[at:start]:
            found.append(text[at:start])
        depth, end = 1, start + 2
        while depth:
            if end >= len(text):
                raise Open("a brace that is not closed")
            depth += 1 if text[end] == "{" else -1 if text[end] == "}" else 0
            end += 1
        found.append((text[start + 2 : end - 1],))
        at = end
    return [*found, text[at:]] if text[at:] else found


def _spelled(value: Any) -> str:
    """*value* inside a text, as YAML has it."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else "null" if value is None else str(value)


def _head(inside: str) -> tuple[str, bool, str]:
    """The resolver's name before the first colon that stands in no inner expression."""
    before = inside.partition("${")[0]
    if ":" not in before:
        return inside, False, ""
    name, _, rest = inside.partition(":")
    return name.strip(), True, rest


def _arguments(text: str) -> list[str]:
    """Parts of *text* between commas that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for k, letter in enumerate(text):
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            parts.append(text[start:k].strip())
            start = k + 1
    return [*parts, text[start:].strip()]


def _path(name: str, key: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The key that *name* means, seen from *key*; ``a[0].b`` is ``a.0.b``."""
    dots = len(name) - len(name.lstrip("."))
    words = [word for word in name[dots:].replace("[", ".").replace("]", "").split(".") if word]
    own = tuple(int(word) if word.isdecimal() and len(word) < 10 else word for word in words)
    if dots > len(key):
        raise Open(f"{name} is above the root")
    return (*(key[: len(key) - dots] if dots else ()), *own)


def _stands(data: Any, path: tuple[str | int, ...]) -> bool:
    """Whether there is something at *path*, also null."""
    above = value_at(data, path[:-1]) if path else None
    return path[-1] in above if path and isinstance(above, Mapping) else value_at(data, path) is not None


def _summed(name: str, values: list[Any]) -> Any:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        raise Open(f"{name} of something that is not a number")
    if name in CHOICES:
        return CHOICES[name](values)
    total: Value = values[0]
    try:
        for value in values[1:]:
            total = combined(SUMS[name], total, value)
    except NoSum as reason:
        raise Open(str(reason)) from None
    return total


def _evaluated(text: str) -> Any:
    try:
        return evaluate(text.strip().strip("'\""), style="python")
    except NoSum as reason:
        raise Open(str(reason)) from None


def _cast(name: str, value: Any) -> Any:
    try:
        if name in ("int", "float"):
            return (int if name == "int" else float)(value)
        return value_of(value) if name == "oc.decode" and isinstance(value, str) else value
    except (ValueError, TypeError, OverflowError):
        raise Open(f"{name} of something that is not a number") from None
