"""
Sums that stand in files: a small evaluator of whole numbers, fractions and lists, bounded in size; nothing is executed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

MOST_TOKENS = 400
DEEPEST = 24
LARGEST = 1 << 63
MOST_ITEMS = 4096
TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|([A-Za-z_]\w*)"
    r"|(\*\*|//|<<|>>|&&|\|\||[=!<>]=|[-+*/%<>!~&|^?:()\[\],]))"
)
LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<=", ">=", "<", ">"), ("<<", ">>"), ("+", "-"),
    ("*", "//", "/", "%"),
)  # fmt: skip
"""Operators with two sides, those that bind least first."""

Value = int | float | list[Any]
Style = Literal["shell", "python"]


class NoSum(ValueError):
    """A text that is no sum, or one whose result has no bounds; the message says why in a few words."""


def evaluate(text: str, names: Mapping[str, Value | None] | None = None, style: Style = "shell") -> Value:
    """What the expression *text* comes to; *names* are the values of its variables (None: not known).

    In the *style* of ``shell`` a quotient is cut to a whole number, as bash does, in that of ``python`` it is not.
    Raises NoSum; for a name whose value is not known as well.

    >>> evaluate("2*(3+4) > 13 ? 8 : 0"), evaluate("7/2"), evaluate("7/2", style="python")
    (8, 3, 3.5)
    >>> evaluate("([0]*1+[1]*3)", style="python"), evaluate("TP > 1", {"TP": 4})
    ([0, 1, 1, 1], 1)
    """
    return _Evaluator(_tokens(text), names or {}, style).whole()


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        found = TOKEN.match(text, at)
        if not found or len(tokens) == MOST_TOKENS:
            raise NoSum("no arithmetic expression" if not found else "an expression that is too long")
        tokens.append(found[0].strip())
        at = found.end()
    return tokens


class _Evaluator:
    """A walk over *tokens*, by precedence."""

    def __init__(self, tokens: list[str], names: Mapping[str, Value | None], style: Style):
        self.tokens, self.names, self.style = tokens, names, style
        self.at = 0
        self.depth = 0

    def whole(self) -> Value:
        """The value of all of it."""
        value = self.choice()
        if self.at < len(self.tokens):
            raise NoSum(f"{self.tokens[self.at]!r} is not expected there")
        return value

    def choice(self) -> Value:
        """``a ? b : c``, or less."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise NoSum("an expression that is nested too deeply")
        value = self.two_sided(0)
        if self.taken("?"):
            first = self.choice()
            self.needed(":")
            second = self.choice()
            value = first if value else second
        self.depth -= 1
        return value

    def two_sided(self, level: int) -> Value:
        """Operators of *level* and those that bind more."""
        if level == len(LEVELS):
            return self.one_sided()
        value = self.two_sided(level + 1)
        while self.at < len(self.tokens) and self.tokens[self.at] in LEVELS[level]:
            sign = self.tokens[self.at]
            self.at += 1
            value = combined(sign, value, self.two_sided(level + 1), self.style)
        return value

    def one_sided(self) -> Value:
        """A sign before a value, and powers."""
        signs = []
        while self.at < len(self.tokens) and self.tokens[self.at] in "+-!~":
            signs.append(self.tokens[self.at])
            self.at += 1
        value = self.power()
        for sign in reversed(signs):
            value = _signed(sign, value)
        return value

    def power(self) -> Value:
        """``a ** b``, or less."""
        value = self.single()
        if self.taken("**"):
            self.depth += 1
            if self.depth > DEEPEST:
                raise NoSum("an expression that is nested too deeply")
            value = combined("**", value, self.one_sided(), self.style)
            self.depth -= 1
        return value

    def single(self) -> Value:
        """A number, a name, a list, or something in parentheses."""
        if self.at >= len(self.tokens):
            raise NoSum("an expression that ends too early")
        token = self.tokens[self.at]
        self.at += 1
        if token == "(":
            value = self.choice()
            self.needed(")")
            return value
        if token == "[":
            return self.items()
        if token[0].isdigit() or token[0] == ".":
            return number(token)
        if token[0].isalpha() or token[0] == "_":
            known = self.names.get(token)
            if known is None:
                raise NoSum(f"the value of {token} is not known")
            return known
        raise NoSum(f"{token!r} is not expected there")

    def items(self) -> list[Any]:
        """A list after its bracket."""
        found: list[Any] = []
        while not self.taken("]"):
            found.append(self.choice())
            if not self.taken(","):
                self.needed("]")
                break
        return found

    def taken(self, token: str) -> bool:
        """Whether the next token is *token*, which is then behind us."""
        if self.at < len(self.tokens) and self.tokens[self.at] == token:
            self.at += 1
            return True
        return False

    def needed(self, token: str) -> None:
        """Go past *token*."""
        if not self.taken(token):
            raise NoSum(f"{token!r} is missing")


def number(token: str) -> int | float:
    """The number that *token* is.

    >>> number("1_000"), number("0x10"), number("1e-2")
    (1000, 16, 0.01)
    """
    try:
        if token[:2].lower() == "0x":
            return _bounded(int(token, 16))
        plain = token.replace("_", "")
        return _bounded(int(plain)) if plain.isdecimal() else _bounded(float(plain))
    except ValueError:
        raise NoSum(f"{token[:20]!r} is not a number") from None


def combined(sign: str, left: Value, right: Value, style: Style = "python") -> Value:
    """*left* and *right* under the operator *sign*.

    >>> combined("*", [0], 3), combined("%", -7, 2, "shell"), combined("%", -7, 2)
    ([0, 0, 0], -1, 1)
    """
    if isinstance(left, list) or isinstance(right, list):
        return _lists(sign, left, right)
    if sign in ("<<", ">>", "&", "|", "^") and not (isinstance(left, int) and isinstance(right, int)):
        raise NoSum(f"{sign} needs whole numbers")
    if sign in ("/", "//", "%"):
        return _quotient(sign, left, right, style)
    if sign == "**" and (abs(right) > 64 or right < 0):
        raise NoSum("a power that is out of range")
    if sign in ("<<", ">>") and not 0 <= right < 64:
        raise NoSum("a shift that is out of range")
    try:
        return _bounded(SIGNS[sign](left, right))
    except OverflowError:
        raise NoSum("a number that is too large") from None


def _quotient(sign: str, left: int | float, right: int | float, style: Style) -> int | float:
    """Bash cuts a quotient towards zero; a fraction in one makes both styles alike."""
    if right == 0:
        raise NoSum("division by zero")
    if style == "shell" and isinstance(left, int) and isinstance(right, int):
        cut = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return left - cut * right if sign == "%" else cut
    try:
        return _bounded({"/": operator.truediv, "//": operator.floordiv, "%": operator.mod}[sign](left, right))
    except OverflowError:
        raise NoSum("a number that is too large") from None


def _lists(sign: str, left: Value, right: Value) -> list[Any]:
    if isinstance(left, int) and sign == "*":
        left, right = right, left
    if isinstance(left, list) and sign == "+" and isinstance(right, list):
        joined = [left, right]
    elif isinstance(left, list) and sign == "*" and isinstance(right, int) and 0 <= right <= MOST_ITEMS:
        joined = [left] * right
    else:
        raise NoSum(f"{sign} does not join a list and that")
    if sum(map(len, joined)) > MOST_ITEMS:
        raise NoSum("a list that is too long")
    return [item for part in joined for item in part]


def _signed(sign: str, value: Value) -> Value:
    if isinstance(value, list) or (sign == "~" and not isinstance(value, int)):
        raise NoSum(f"{sign} does not go before that")
    if sign == "~":
        return ~int(value)
    return {"-": -value, "+": value, "!": int(not value)}[sign]


def _bounded(value: float) -> int | float:
    """*value* if it has the size of a number that somebody means."""
    if isinstance(value, complex) or not abs(value) < LARGEST:
        raise NoSum("a number that is too large")
    return value


SIGNS: Mapping[str, Callable[[Any, Any], int | float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "**": operator.pow, "<<": operator.lshift,
    ">>": operator.rshift, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b), "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b), "<=": lambda a, b: int(a <= b), ">=": lambda a, b: int(a >= b),
    "&&": lambda a, b: int(bool(a) and bool(b)), "||": lambda a, b: int(bool(a) or bool(b)),
}  # fmt: skip
