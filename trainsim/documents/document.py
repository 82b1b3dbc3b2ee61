"""
From the text of a file to a mapping with the line of every key: what is not one YAML mapping is refused in words.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import yaml

from trainsim.documents.kept import KeptReading
from trainsim.documents.origin import Key, Origin
from trainsim.errors import InvalidData, TrainsimError

MOST_BYTES = 1 << 20  # of a file that a person wrote
MOST_VALUES = 100_000
DEEPEST = 20
UNREADABLE = (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What PyYAML raises for text that means nothing: some tags and numbers end in Python's own errors."""
_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXTS: KeptReading[str] = KeptReading()
_DATE, _BOOL, _TEXT = (f"tag:yaml.org,2002:{kind}" for kind in ("timestamp", "bool", "str"))


class Loader(_FAST):  # type: ignore[misc]
    """PyYAML's safe loader; dates stay text, ``1e-6`` is a number and the key ``on`` is a word, as in YAML 1.2."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.tag == _BOOL:
                key.tag = _TEXT
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in rules if tag != _DATE]
    for letter, rules in _FAST.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(?:\d+|\d+\.\d*|\.\d+)[eE][-+]?\d+"), list("-+.0123456789")
)


@dataclass(frozen=True, eq=False)
class Document:
    """A mapping that a person wrote, what it is called, and where its values stand; equal where it says the same.

    ``repeated`` has the first line of keys that stand twice, where the last one counts.
    """

    name: str
    data: Mapping[str, Any]
    origin: Origin = field(default_factory=Origin)
    error: type[TrainsimError] = InvalidData
    repeated: Mapping[Key, int] = field(default_factory=dict)

    @cached_property
    def content(self) -> str:
        """All that the document says, as one text: equal for equal documents."""
        return canonical([self.name, self.data])

    def fail(self, key: Key, message: str) -> TrainsimError:
        """The exception to raise about the value at *key*."""
        place = self.origin.where(key)
        return self.error(f"{place}: {message}" if place else message)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Document) and self.content == other.content)

    def __hash__(self) -> int:
        return hash(self.content)


def text_of(path: Path, shown: str, error: type[TrainsimError] = InvalidData, most: int = MOST_BYTES) -> str:
    """The text of the regular file at *path*, called *shown* in messages; *error* if it cannot be one, or is
    longer than *most* bytes."""
    try:
        return _TEXTS.of(path, lambda: _text(path, shown, error, most))
    except UnicodeDecodeError as fault:
        raise error(f"{shown}: cannot be read: not UTF-8 text ({fault.reason} at byte {fault.start})") from None
    except OSError as fault:
        raise error(f"{shown}: cannot be read: {fault.strerror or fault}") from None
    except ValueError as fault:  # a path with a NUL in it
        raise error(f"{shown!r}: cannot be read: {fault}") from None


def _text(path: Path, shown: str, error: type[TrainsimError], most: int) -> str:
    if not stat.S_ISREG(path.stat().st_mode):
        raise error(f"{shown}: cannot be read: it is {'a folder' if path.is_dir() else 'no regular file'}")
    with path.open("rb") as file:  # a little more than allowed, since a file may grow while it is read
        raw = file.read(most + 1)
    if len(raw) > most:
        raise error(f"{shown}: cannot be read: it is longer than {most} bytes")
    return raw.decode("utf-8")


def read_file(path: Path, *, shown: str, error: type[TrainsimError] = InvalidData, needs: str = "") -> Document:
    """The document in the file at *path*; a file that has changed is read anew, and equal text gives the same value."""
    return read_text(text_of(path, shown, error), file=shown, folder=path.parent, error=error, needs=needs)


def read_text(
    text: str,
    *,
    file: str,
    folder: Path = Path(),
    error: type[TrainsimError] = InvalidData,
    needs: str = "",
    last_counts: bool = False,
) -> Document:
    """The document that *text* is, called *file* in messages. Raises *error*, with the line.

    *needs* says what a document of this kind needs at least, for one that is empty. A key that stands twice is refused,
    unless *last_counts*, as it does for most programs that read YAML; the document's ``repeated`` then has it.

    >>> read_text("a: {b: 1}", file="x.yaml").origin.where(("a", "b"))
    'x.yaml:1: a.b'
    >>> read_text("{a: 1, a: 2}", file="x.yaml", last_counts=True).repeated
    {('a',): 1}
    """
    raised: Any = error
    return _read(text, file, folder, raised, needs, last_counts)


@lru_cache(maxsize=256)
def _read(text: str, file: str, folder: Path, error: Any, needs: str, last_counts: bool) -> Document:
    repeated: dict[Key, int] | None = {} if last_counts else None
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        if node is None:
            raise error(f"{file}: the file is empty; {needs or 'it needs a mapping (key: value)'}")
        if not isinstance(node, yaml.MappingNode):
            kind = "list" if isinstance(node, yaml.SequenceNode) else "single value"
            raise error(f"{file}:1: holds a {kind}, where a mapping (key: value) is expected")
        lines = dict(_lines(node, file, error, repeated))
        data = loader.construct_document(node)
    except yaml.MarkedYAMLError as fault:
        raise error(_message(fault, file, text)) from None
    except UNREADABLE as fault:
        raise error(f"{file}: not valid YAML: {_reason(fault, text)}") from None
    if not isinstance(data, dict):  # a mapping with a tag that makes something else of it
        raise error(f"{file}:1: holds a {type(data).__name__}, where a mapping (key: value) is expected")
    return Document(Path(file).stem, data, Origin(file=file, folder=folder, lines=lines), error, repeated or {})


PLAIN = (str, float, bool, type(None))
"""Types whose ``repr`` says all."""


def canonical(value: Any, depth: int = 0) -> str:
    """*value* as one text, whatever the order of its mappings: equal for equal values.

    >>> canonical({"b": [1, "x"], "a": None}) == canonical({"a": None, "b": (1, "x")})
    True
    """
    if type(value) in PLAIN:  # most are, and it is quickly seen
        return repr(value)
    if depth > 2 * DEEPEST:  # in Python a mapping can contain itself
        return "..."
    if isinstance(value, Mapping):
        entries = (f"{canonical(k, depth + 1)}:{canonical(v, depth + 1)}" for k, v in value.items())
        return f"{{{','.join(sorted(entries))}}}"
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return f"[{','.join(canonical(v, depth + 1) for v in value)}]"
    return hex(value) if isinstance(value, int) and not isinstance(value, bool) else repr(value)


def value_of(text: str) -> Any:
    """What *text* means as a YAML value, else the text itself.

    >>> value_of("8"), value_of("[1, 2]"), value_of("1e-6"), value_of("a: b: c")
    (8, [1, 2], 1e-06, 'a: b: c')
    """
    try:
        return yaml.load(text, Loader)
    except UNREADABLE:
        return text


def _reason(fault: Exception, text: str) -> str:
    """What PyYAML says of characters that no text has; what Python says of a value with a wrong tag helps nobody."""
    surrogates = any("\ud800" <= letter <= "\udfff" for letter in text)
    if isinstance(fault, yaml.YAMLError) or surrogates:
        return " ".join(str(fault).replace('in "<unicode string>", ', "").split())
    return "a value is not what its tag (!!...) says"


def _message(fault: yaml.MarkedYAMLError, file: str, text: str) -> str:
    mark = fault.problem_mark or fault.context_mark
    what = fault.problem or fault.context or "cannot be read"
    lines = text.splitlines()
    if mark and mark.line < len(lines) and lines[mark.line][mark.column : mark.column + 1] == "\t":
        what = "a tab at the start of a value; YAML needs spaces"
    elif "single document" in (fault.context or ""):
        what = "it holds several documents (---), where one is expected"
    return f"{file}{f':{mark.line + 1}' if mark else ''}: not valid YAML: {what}"


def _lines(
    root: yaml.Node, file: str, error: type[TrainsimError], repeated: dict[Key, int] | None = None
) -> Iterator[tuple[Key, int]]:
    """(key, line) of everything under *root*; refuses endless aliases, complex keys, and keys that stand twice unless
    these go to *repeated*."""
    budget = MOST_VALUES
    stack: list[tuple[yaml.Node, Key]] = [(root, ())]
    while stack:
        node, key = stack.pop()
        line = node.start_mark.line + 1
        if (budget := budget - 1) < 0 or len(key) > DEEPEST:
            what = "too many or too deeply nested values; one that contains itself through an alias has no end"
            raise error(f"{file}:{line}: {what}")
        if not key or isinstance(key[-1], int):
            yield key, line
        if isinstance(node, yaml.SequenceNode):
            stack.extend((item, (*key, k)) for k, item in enumerate(node.value))
        elif isinstance(node, yaml.MappingNode):
            for name, (line, value, first) in _entries(node, file, error, repeated is not None).items():
                yield (*key, name), line
                stack.append((value, (*key, name)))
                if repeated is not None and first:
                    repeated[(*key, name)] = first


def _entries(
    node: yaml.MappingNode, file: str, error: type[TrainsimError], last_counts: bool
) -> dict[str, tuple[int, yaml.Node, int]]:
    """(Line, value, where it stood first or 0) of each key of a mapping."""
    seen: dict[str, tuple[int, yaml.Node, int]] = {}
    for left, right in node.value:
        line = left.start_mark.line + 1
        if not isinstance(left, yaml.ScalarNode):
            raise error(f"{file}:{line}: a key must be a word, not a list or a mapping")
        if left.value in seen and left.value == "<<":
            raise error(f"{file}:{line}: << is already given in line {seen['<<'][0]}; one with a list takes several")
        if left.value in seen and not last_counts:
            raise error(f"{file}:{line}: {left.value} is already given in line {seen[left.value][0]}; keep one")
        before = seen.get(left.value)
        seen[left.value] = (line, right, (before[2] or before[0]) if before else 0)
    return seen
