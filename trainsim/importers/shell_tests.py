"""
Conditions of bash: what ``test``, ``[ ]`` and ``[[ ]]`` say about words that are known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from trainsim.importers.shell_text import Text

COMPARED = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}
SAME = ("=", "==", "!=")
ORDER = ("<", ">")
FILES = re.compile(r"-[abcdefghkprstuwxLNOGS]")
Truth = bool | None
"""None where it depends on what is not known."""


def holds(words: Sequence[Text], *, patterns: bool = False) -> Truth:
    """Whether the condition *words* holds; with *patterns*, as in ``[[ ]]``, an equality is one of a pattern.

    An environment variable alone, tested for being empty, is taken as not set.

    >>> from trainsim.importers.shell_text import said, split
    >>> holds(split(said("8 -gt 1", 1))), holds(split(said("a = b -o ! -z x", 1))), holds(split(said("-f x", 1)))
    (True, True, None)
    """
    return _Condition([*words], patterns).whole()


class _Condition:
    def __init__(self, words: list[Text], patterns: bool):
        self.words, self.patterns, self.at, self.depth = words, patterns, 0, 0

    def whole(self) -> Truth:
        """The truth of all words; None for what is no condition."""
        if not self.words:
            return False
        truth = self.either()
        return truth if self.at >= len(self.words) else None

    def either(self) -> Truth:
        """Conditions between ors."""
        truth = self.both()
        while self._take("||", "-o"):
            other = self.both()
            truth = True if truth or other else None if truth is None or other is None else False
        return truth

    def both(self) -> Truth:
        """Conditions between ands."""
        truth = self.single()
        while self._take("&&", "-a"):
            other = self.single()
            truth = False if truth is False or other is False else None if truth is None or other is None else True
        return truth

    def single(self) -> Truth:
        """One condition."""
        negated = False
        while self._take("!"):
            negated = not negated
            if self.at >= len(self.words):
                return negated
        truth = self._group()
        return truth if truth is None or not negated else not truth

    def _group(self) -> Truth:
        """A condition in parentheses, or one without them."""
        self.depth += 1
        if self.depth < 30 and self._take("("):
            truth = self.either()
            self._take(")")
            return truth
        return self._compared()

    def _compared(self) -> Truth:
        left = self._next()
        if left is None:
            return None
        sign = self.words[self.at].chars if self.at < len(self.words) else ""
        if sign in COMPARED or sign in SAME or sign in ORDER or sign == "=~":
            self.at += 1
            right = self._next()
            return None if right is None else compared(left, sign, right, patterns=self.patterns)
        if left.chars in ("-z", "-n", "-v") and (word := self._next()) is not None:
            return _empty(word) if left.chars == "-z" else not _empty(word)
        if left.chars in ("-z", "-n"):
            return left.chars == "-z"  # nothing follows: its word was empty
        if FILES.fullmatch(left.chars) and self._next() is not None:
            return None
        return None if left.unknown else bool(left.chars)

    def _next(self) -> Text | None:
        self.at += 1
        return self.words[self.at - 1] if self.at <= len(self.words) else None

    def _take(self, *words: str) -> bool:
        if self.at < len(self.words) and self.words[self.at].chars in words:
            self.at += 1
            return True
        return False


def _empty(word: Text) -> bool:
    return not word.chars or bool(word.unknown and re.fullmatch(r"\$\w+", word.shown))


def compared(left: Text, sign: str, right: Text, *, patterns: bool) -> Truth:
    """What a comparison of two words comes to."""
    if left.unknown or right.unknown or sign == "=~":
        return None
    if sign in COMPARED:
        try:
            a, b = int(left.chars), int(right.chars)
        except ValueError:
            return None
        return {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[COMPARED[sign]]
    if sign in ORDER:
        return left.chars < right.chars if sign == "<" else left.chars > right.chars
    same = matches(left.chars, right.chars) if patterns else left.chars == right.chars
    return same if sign != "!=" else not same


def matches(chars: str, pattern: str) -> bool:
    """Whether *chars* fit a *pattern* of the shell; one that is long or holds many asterisks fits itself alone."""
    if len(pattern) > 200 or pattern.count("*") > 6 or len(chars) > 2000:
        return chars == pattern
    return fnmatchcase(chars, pattern)
