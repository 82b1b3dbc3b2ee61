"""
JSON and TOML as documents: with the line of every key, like YAML.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainsim.documents.document import DEEPEST, MOST_VALUES, Document
from trainsim.documents.origin import Key, Origin
from trainsim.errors import InvalidData, TrainsimError

PYTHONS = {"True": "true", "False": "false", "None": "null"}
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_WORD = re.compile(r"\$\{[^}\n]*\}|\{\{[^}\n]*\}\}|<[^>\n]*>|[A-Za-z_$@%][\w$@%.-]*")
_TABLE = re.compile(r"\s*\[(\[?)\s*([^\]]+?)\s*\]")
_ASSIGNED = re.compile(r"""\s*((?:[\w-]+|"[^"\n]*"|'[^'\n]*')(?:\s*\.\s*(?:[\w-]+|"[^"\n]*"|'[^'\n]*'))*)\s*=""")
_LONG_KEY = re.compile(r"""(?<![\w.-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){100}""")
_DOTTED = re.compile(r"""[\w-]+|"[^"\n]*"|'[^'\n]*'""")


def read_json_text(
    text: str, *, file: str, folder: Path = Path(), error: type[TrainsimError] = InvalidData
) -> Document:
    """The document that *text* is as JSON, called *file* in messages. Raises *error*, with the line.

    >>> read_json_text('{"a": {"b": 1}}', file="x.json").origin.where(("a", "b"))
    'x.json:1: a.b'
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in pairs:
            if name in values:
                raise error(f"{file}: {name!r} stands twice in one object; keep one")
            values[name] = value
        return values

    try:
        data = json.loads(text.lstrip("\ufeff"), object_pairs_hook=unique, parse_constant=_no_constant)
    except json.JSONDecodeError as fault:
        raise error(f"{file}:{fault.lineno}: not valid JSON: {fault.msg}{_hint(text, fault)}") from None
    except (ValueError, RecursionError) as fault:
        raise error(f"{file}: not valid JSON: {str(fault) or 'nested too deeply'}") from None
    if not isinstance(data, dict):
        raise error(f"{file}:1: holds a {_kind(data)}, where an object ({{...}}) is expected")
    lines = dict(_json_lines(text, file, error))
    return Document(Path(file).stem, data, Origin(file=file, folder=folder, lines=lines), error)


def read_toml_text(
    text: str, *, file: str, folder: Path = Path(), error: type[TrainsimError] = InvalidData
) -> Document:
    """The document that *text* is as TOML, called *file* in messages. Raises *error*, with the line.

    >>> read_toml_text('[a]\\nb = 1', file="x.toml").origin.where(("a", "b"))
    'x.toml:2: a.b'
    """
    if found := _LONG_KEY.search(text):  # the parser takes the square of its length
        raise error(f"{file}:{text.count(chr(10), 0, found.start()) + 1}: not valid TOML: a key of too many parts")
    try:
        data = tomllib.loads(text.lstrip("\ufeff").replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as fault:
        line = re.search(r"at line (\d+)", str(fault))
        raise error(f"{file}{f':{line[1]}' if line else ''}: not valid TOML: {fault}") from None
    lines = dict(_toml_lines(text))
    return Document(Path(file).stem, data, Origin(file=file, folder=folder, lines=lines), error)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _kind(data: Any) -> str:
    return "list" if isinstance(data, list) else "single value"


def _hint(text: str, fault: json.JSONDecodeError) -> str:
    """What people usually did where JSON ends."""
    at, before = text[fault.pos :].split("\n", 1)[0], text[: fault.pos].rstrip()
    if not text.strip():
        return "; the file is empty"
    if at[:1] in ("#", "/"):
        return "; JSON has no comments"
    if at[:1] in ("}", "]") and before.endswith(","):
        return "; a comma stands before the end of the list or object"
    if at[:1] == "'":
        return "; JSON needs double quotes"
    if at.startswith("..."):
        return "; '...' stands for something that was left out"
    if word := _WORD.match(at):
        return _bare(word[0])
    return f" (at {at[:2]!r})" if at.strip() else ""


def _bare(word: str) -> str:
    """What a word without quotes was meant to be."""
    if word in PYTHONS:
        return f"; {word} is Python's word: JSON has {PYTHONS[word]}"
    shown = word if len(word) < 40 else f"{word[:40]}..."
    if word.upper() == word or not word[0].isalpha():
        return f"; {shown} is a placeholder of a template: write its value there"
    return f"; {shown} stands without quotes"


def _json_lines(text: str, file: str, error: type[TrainsimError]) -> Iterator[tuple[Key, int]]:
    """(key, line) of every key and item of a text that is JSON."""
    path: list[str | int] = []
    waits: list[bool] = []  # for each open object whether a key comes next; lists never wait
    line, position = 1, 0
    for count, token in enumerate(_TOKEN.finditer(text)):
        if count > 6 * MOST_VALUES or len(path) > DEEPEST:
            raise error(f"{file}:{line}: too many or too deeply nested values")
        line, position = line + text.count("\n", position, token.start()), token.start()
        word = token[0]
        if word in "{[":
            if path and isinstance(path[-1], int):
                yield tuple(path), line
            path.append("" if word == "{" else 0)
            waits.append(word == "{")
        elif word in "}]":
            path.pop()
            waits.pop()
        elif word == "," and path:
            last = path[-1]
            path[-1], waits[-1] = (last + 1, False) if isinstance(last, int) else ("", True)
        elif waits and waits[-1] and word.startswith('"'):
            path[-1], waits[-1] = json.loads(word), False
            yield tuple(path), line


def _toml_lines(text: str) -> Iterator[tuple[Key, int]]:
    """(key, line) of the tables and keys of a text that is TOML."""
    table: Key = ()
    counts: dict[Key, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.match(line):
            table = _parts(header[2])
            if header[1]:
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            yield table, number
        elif assigned := _ASSIGNED.match(line):
            yield (*table, *_parts(assigned[1])), number


def _parts(dotted: str) -> Key:
    return tuple(part.strip("\"'") for part in _DOTTED.findall(dotted))
