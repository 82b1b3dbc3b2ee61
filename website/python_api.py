"""The reference of the public names, from their signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import trainsim
from website.descriptions import descriptions
from website.key import cell, sentence

INTRO = """# The Python API

What `import trainsim as ts` gives. Everything else in the package may change; the modules are described in
[the design](../design.md). Values are in SI units: seconds, bytes, FLOP/s. Whatever goes wrong with what you give is a
`ts.TrainsimError`, whose text says what and what would work.
"""
ROLE = re.compile(r"``([^`]+)``")
EXAMPLE = re.compile(r"(?:^ *(?:>>>|\.\.\.).*\n?(?:^(?! *>>>) *\S.*\n?)*)+", re.MULTILINE)


def page() -> str:
    """The page, as Markdown."""
    parts = [INTRO]
    for name in trainsim.__all__:
        parts += [f"## ts.{name}", *_entry(getattr(trainsim, name), f"ts.{name}")]
    return "\n\n".join(parts) + "\n"


def _entry(thing: Any, name: str) -> Iterator[str]:
    if isinstance(thing, ModuleType):
        yield _text(thing)
        for inner in sorted(n for n in getattr(thing, "__all__", dir(thing)) if _is_public(thing, n)):
            yield f"### {name}.{inner}"
            yield from _entry(getattr(thing, inner), f"{name}.{inner}")
        return
    if signature := _signature(thing, name):
        yield f"```python\n{signature}\n```"
    yield _text(thing)
    if inspect.isclass(thing) and not issubclass(thing, Exception):
        yield from _members(thing)


def _is_public(module: ModuleType, name: str) -> bool:
    return not name.startswith("_") and callable(getattr(module, name))


def _members(kind: type[Any]) -> Iterator[str]:
    """A table of attributes, and then each method by itself."""
    whole = [one for one in reversed(kind.__mro__) if one.__module__.startswith("trainsim")]
    members = list({n: v for one in whole for n, v in vars(one).items() if not n.startswith("_")}.items())
    said = {n: sentence(_plain(text)) for n, text in descriptions(kind).items()}
    said |= {name: _first(value) for name, value in members if _is_attribute(value) and _first(value)}
    rows = [f"| `{name}` | {text} |" for name, text in said.items() if not name.startswith("_")]
    if rows:
        yield "\n".join(["| attribute | what it is |", "|---|---|", *rows])
    for name, value in members:
        method = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(method) and inspect.getdoc(method):
            yield f"### {kind.__name__}.{name}"
            yield f"```python\n{_signature(method, f'{kind.__name__}.{name}')}\n```"
            yield _text(method)


def _is_attribute(value: Any) -> bool:
    return isinstance(value, property) or type(value).__name__ == "cached_property"


def _first(value: Any) -> str:
    return sentence(_plain((inspect.getdoc(value) or "").split("\n\n")[0]))


def _plain(text: str) -> str:
    return cell(" ".join(text.split()))


def _signature(thing: Any, name: str) -> str:
    """The signature as it is written, an argument per line where it is long; nothing for exceptions."""
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return ""
    try:
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(thing)))
    except (OSError, SyntaxError):
        return ""
    node = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef))
    if isinstance(node, ast.ClassDef):
        return ""
    parts = _arguments(node)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{name}({', '.join(parts)}){returns}"
    return line if len(line) <= 90 else "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){returns}"])


def _arguments(node: ast.FunctionDef) -> list[str]:
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [*([None] * (len(plain) - len(given.defaults))), *given.defaults]
    parts = [_argument(a, d) for a, d in zip(plain, defaults, strict=True) if a.arg not in ("self", "cls")]
    if given.vararg:
        parts.append(f"*{ast.unparse(given.vararg)}")
    elif given.kwonlyargs:
        parts.append("*")
    parts += [_argument(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return [*parts, *([f"**{ast.unparse(given.kwarg)}"] if given.kwarg else [])]


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + (f" = {ast.unparse(default)}" if default is not None else "")


def _text(thing: Any) -> str:
    """A docstring as Markdown: examples in blocks of their own."""
    text = ROLE.sub(r"`\1`", inspect.getdoc(thing) or "")
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
