"""What is said of the fields of a class: the comment behind a field, or the docstring below it."""

from __future__ import annotations

import ast
import inspect
import io
import sys
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from website.key import sentence

MARKS = ("noqa", "fmt:", "type:")
"""Comments for tools."""


@cache
def descriptions(kind: type[Any]) -> Mapping[str, str]:
    """What the code says of each field of *kind* and of the classes that it is made from, as far as it says anything.

    >>> from trainsim.scenario.parallel_section import ParallelSpec
    >>> descriptions(ParallelSpec)["dp"]
    'Replicas; left out: GPUs / (tp x pp x cp)'
    """
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if one.__module__.startswith("trainsim"):
            found |= dict(_own(one))
    return found


def _own(kind: type[Any]) -> Iterator[tuple[str, str]]:
    module = sys.modules.get(kind.__module__)
    source = inspect.getsource(module) if module else ""
    body = next((n.body for n in _classes(source) if n.name == kind.__name__), [])
    comments = _comments(source)
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        below = after.value if isinstance(after, ast.Expr) else None
        if isinstance(below, ast.Constant) and isinstance(below.value, str):
            yield node.target.id, sentence(" ".join(below.value.split()))
        elif text := comments.get(node.end_lineno or node.lineno, ""):
            yield node.target.id, sentence(text)


@cache
def _classes(source: str) -> tuple[ast.ClassDef, ...]:
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))


@cache
def _comments(source: str) -> Mapping[int, str]:
    """Comments for readers, by line."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
    return {line: text for line, text in texts.items() if not text.startswith(MARKS)}
