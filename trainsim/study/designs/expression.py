"""
Conditions as people write them, such as ``parallel.tp * parallel.pp <= 64``: read by Python's grammar, never executed.

What there is: numbers, strings, lists of them, dotted paths, arithmetic, comparisons (also ``in``), and, or, not, min,
max and abs.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from trainsim.errors import ScenarioError, shorten

LONGEST = 1000
"""Letters of a condition."""
LARGEST = 64
"""The largest exponent."""
ARITHMETIC: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
SIGNS: Mapping[type[ast.AST], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
COMPARISONS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs}
ALLOWED = "numbers, strings, paths such as parallel.tp, + - * / // % **, comparisons, and, or, not, in, min, max, abs"
Find = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Expression:
    """A condition that was read. ``paths`` are those that it names, in order.

    >>> Expression.read("parallel.tp * parallel.pp <= 64").value({"parallel.tp": 8, "parallel.pp": 16}.__getitem__)
    False
    """

    text: str
    tree: ast.expr = field(repr=False, compare=False)
    paths: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str) -> Expression:
        """The expression that *text* is. Raises ScenarioError that names what it cannot have."""
        if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
            raise ScenarioError(f"where {shorten(text)}: expected a condition such as 'parallel.tp * parallel.pp <= 8'")
        try:
            tree = ast.parse(text.strip(), mode="eval").body
            _check(tree, text)
            paths = tuple(dict.fromkeys(_paths(tree)))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
            why = getattr(fault, "msg", None) or "cannot be read"
            raise ScenarioError(f"where {text!r}: {why}; expected a condition such as 'parallel.tp <= 8'") from None
        return cls(text, tree, paths)

    def value(self, find: Find) -> Any:
        """What it comes to, where *find* has the value of a path. Raises ScenarioError if it cannot be."""
        try:
            return _value(self.tree, find)
        except (ArithmeticError, TypeError, ValueError) as fault:
            values = ", ".join(f"{path} = {shorten(find(path))}" for path in self.paths)
            raise ScenarioError(f"where {self.text!r}: {fault}" + (f" with {values}" if values else "")) from None


def _path(node: ast.AST) -> str | None:
    """The dotted path that *node* is, if it is one: ``parallel.tp``, ``what_if[0].slow.factor``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _path(node.value)):
        return f"{before}.{node.attr}"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and type(node.slice.value) is int:
        before = _path(node.value)
        return f"{before}.{node.slice.value}" if before else None
    return None


def _paths(node: ast.AST) -> Iterator[str]:
    if path := _path(node):
        yield path
        return
    for inner in node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node):
        yield from _paths(inner)


def _check(node: ast.expr, text: str) -> None:
    """Raise for what an expression cannot have."""
    fine = _path(node) is not None or (isinstance(node, ast.Constant) and _plain(node.value))
    inner: list[ast.expr] = []
    match node:
        case ast.BoolOp(values=inner):
            fine = True
        case ast.List(elts=inner) | ast.Tuple(elts=inner):
            fine = True
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            fine, inner = True, [left, right]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in SIGNS or isinstance(op, ast.Not):
            fine, inner = True, [operand]
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in COMPARISONS for op in ops):
            fine, inner = True, [left, *others]
        case ast.Call(func=ast.Name(id=name), args=inner, keywords=[]) if name in FUNCTIONS and inner:
            fine = name != "abs" or len(inner) == 1
    if not fine:
        raise ScenarioError(f"where {text!r}: cannot have {ast.unparse(node)!r}; it is made of {ALLOWED}")
    for part in inner:
        _check(part, text)


def _plain(value: object) -> bool:
    return isinstance(value, int | float | str) or value is None


def _value(node: ast.expr, find: Find) -> Any:
    if path := _path(node):
        return find(path)
    match node:
        case ast.Constant(value=value):
            return value
        case ast.BoolOp(op=op, values=values):
            return _first(values, find, stop=isinstance(op, ast.Or))
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part, find) for part in parts]
        case ast.UnaryOp(op=sign, operand=operand):
            value = _value(operand, find)
            return not value if isinstance(sign, ast.Not) else SIGNS[type(sign)](_number(value))
        case ast.BinOp(left=left, op=step, right=right):
            return _arithmetic(step, _number(_value(left, find)), _number(_value(right, find)))
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _compared(_value(left, find), ops, others, find)
        case ast.Call(func=ast.Name(id=name), args=args):
            return FUNCTIONS[name](*(_value(arg, find) for arg in args))
    raise TypeError(f"cannot work out {ast.unparse(node)}")


def _first(values: list[ast.expr], find: Find, *, stop: bool) -> Any:
    """The first value that is as true as *stop*, else the last: what ``or`` and ``and`` come to."""
    value: Any = None
    for part in values:
        value = _value(part, find)
        if bool(value) is stop:
            return value
    return value


def _compared(left: Any, ops: list[ast.cmpop], others: list[ast.expr], find: Find) -> bool:
    for op, part in zip(ops, others, strict=True):
        right = _value(part, find)
        if not COMPARISONS[type(op)](left, right):
            return False
        left = right
    return True


def _arithmetic(op: ast.operator, left: float, right: float) -> float:
    if isinstance(op, ast.Pow) and (abs(right) > LARGEST or abs(left) > 2.0**LARGEST):
        raise ValueError(f"{shorten(left)} ** {shorten(right)} is too large; exponents go to {LARGEST}")
    value = ARITHMETIC[type(op)](left, right)
    if isinstance(value, complex):
        raise ValueError(f"{shorten(left)} ** {shorten(right)} is not a real number")
    if isinstance(value, float) and not isfinite(value):
        raise ValueError("a number is too large")
    return float(value) if isinstance(value, float) else int(value)


def _number(value: Any) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{shorten(value)} is not a number")
    return value
