"""
Words of bash with the expansions in them, and the blanks, comments and here-documents between words.
"""

from __future__ import annotations

import re

from trainsim.importers.shell_text import CLOSE, OPEN, Text
from trainsim.importers.shell_tree import (
    Arithmetic,
    Literal,
    Parameter,
    Part,
    Substitution,
    Unreadable,
    Word,
)

DEEPEST = 30
_OPAQUE = f"{OPEN}[^{CLOSE}]*{CLOSE}"
PLAIN = re.compile(rf"(?:{_OPAQUE}|[^{OPEN}\s;&|<>()'\"$`\\])+")
QUOTED = re.compile(rf"(?:{_OPAQUE}|[^{OPEN}\"$`\\])+")
COMMENT_AFTER = re.compile(r"\\[ \t]+(#[^\n]*)?(?=\n|$)")
SPECIAL = "@*#?$!-"
NAMED = re.compile(rf"[A-Za-z_]\w*|\d|[{re.escape(SPECIAL)}]")
NAMED_IN_BRACES = re.compile(rf"[A-Za-z_]\w*|\d+|[{re.escape(SPECIAL)}]")
INDEX = re.compile(r"\[([^\]\n]*)\]")
OPERATOR = re.compile(r":?[-=?+]|##?|%%?|//?|\^\^?|,,?|:|@")
IN_BRACES = re.compile(rf"(?:{_OPAQUE}|[^{OPEN}}}\\'\"$`])+")


class Words:
    """Reads words of a *text*; ``remarks`` are (line, words) about what bash would do differently."""

    def __init__(self, text: Text, depth: int = 0):
        self.text, self.chars, self.at = text, text.chars, 0
        self.depth = depth
        self.start = 0
        self.remarks: list[tuple[int, str]] = []

    # words

    def needed_word(self) -> Word:
        start = self.at
        word = self.word()
        if self.at == start:
            raise self.wrong(f"{self.chars[self.at]!r} is not expected here")
        return word

    def word(self) -> Word:
        """A word, up to a blank or a sign of the shell."""
        self.start = self.at
        parts: list[Part] = []
        while self.at < len(self.chars):
            letter = self.chars[self.at]
            if found := PLAIN.match(self.chars, self.at):
                parts.append(Literal(self.text[self.at : found.end()], False))
                self.at = found.end()
            elif self._continued() or not self._quoting(letter, parts):
                break
        return tuple(parts)

    def _continued(self) -> bool:
        """Whether only blanks or a comment follow a backslash: meant as the end of a line that goes on."""
        return bool(COMMENT_AFTER.match(self.chars, self.at))

    def _escaped(self, parts: list[Part]) -> None:
        if self.chars.startswith("\n", self.at + 1):
            self.at += 2
        else:
            parts.append(Literal(self.text[self.at + 1 : self.at + 2], True))
            self.at += 2

    def _quoting(self, letter: str, parts: list[Part]) -> bool:
        """Add the escape, quote or dollar that begins with *letter*, outside of quotes. False if it is none."""
        if letter == "\\":
            self._escaped(parts)
        elif letter == "'":
            parts.append(self.single(self.at))
        elif letter == '"':
            parts += self._double()
        elif letter in "$`":
            parts.append(self._dollar(quoted=False))
        else:
            return False
        return True

    def single(self, start: int) -> Literal:
        """What stands between the quote at *start* and the next."""
        end = self.chars.find("'", start + 1)
        if end < 0:
            raise Unreadable(self.text.lines[start], "a quote ' that is not closed")
        self.at = end + 1
        return Literal(self.text[start + 1 : end], True)

    def _double(self) -> list[Part]:
        line = self.line()
        self.at += 1
        parts = self.inside('"', line)
        return parts or [Literal(self.text[0:0], True)]

    def inside(self, end: str, line: int) -> list[Part]:
        """Parts inside double quotes up to *end*; all of the text if that is empty."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.wrong("expressions nested too deeply")
        parts: list[Part] = []
        while True:
            if self.at >= len(self.chars):
                if end:
                    raise Unreadable(line, 'a quote " that is not closed')
                break
            letter = self.chars[self.at]
            if letter == end:
                self.at += 1
                break
            if letter == "\\" and self.at + 1 < len(self.chars):
                if self.chars[self.at + 1] != "\n":
                    kept = 1 if self.chars[self.at + 1] in '$`"\\' else 0
                    parts.append(Literal(self.text[self.at + kept : self.at + 2], True))
                self.at += 2
            elif letter in "$`":
                parts.append(self._dollar(quoted=True))
            else:
                found = QUOTED.match(self.chars, self.at)
                stop = found.end() if found else self.at + 1
                parts.append(Literal(self.text[self.at : stop], True))
                self.at = stop
        self.depth -= 1
        return parts

    def _dollar(self, *, quoted: bool) -> Part:
        line, start = self.line(), self.at
        following = self.chars[start + 1 : start + 3]
        if self.chars[start] == "`":
            end = self.chars.find("`", start + 1)
            if end < 0:
                raise Unreadable(line, "a quote ` that is not closed")
            self.at = end + 1
            return Substitution(self.text[start + 1 : end], line, quoted)
        if following == "((" and self.closes(start + 3):
            self.at += 1
            return Arithmetic(self.sum(2), line, quoted)
        if following[:1] == "(":
            self.at += 1
            inside = self.parenthesis()
            return Substitution(inside[1:-1], line, quoted)
        if following[:1] == "{":
            self.at += 2
            return self._braces(line, quoted)
        if following[:1] == "'" and not quoted:
            return self.single(start + 1)
        found = NAMED.match(self.chars, start + 1)
        if not found:
            self.at += 1
            return Literal(self.text[start : start + 1], quoted)
        self.at = found.end()
        return Parameter(found[0], line, quoted)

    def closes(self, at: int) -> bool:
        """Whether ``((`` before *at* is closed by ``))``."""
        depth = 2
        for k in range(at, min(len(self.chars), at + 2000)):
            depth += {"(": 1, ")": -1}.get(self.chars[k], 0)
            if depth == 1:
                return self.chars.startswith("))", k)
        return False

    def sum(self, width: int) -> Word:
        """What stands between double parentheses."""
        start, depth, at = self.at + width, width, self.at + width
        while at < len(self.chars) and depth:
            depth += {"(": 1, ")": -1}.get(self.chars[at], 0)
            at += 1
        if depth:
            raise self.wrong("(( that is not closed")
        self.at = at
        return document(self.text[start : at - width], self.depth)

    def _braces(self, line: int, quoted: bool) -> Part:
        """``${...}`` after its brace."""
        length = self.chars.startswith("#", self.at) and not self.chars.startswith("#}", self.at)
        indirect = self.chars.startswith("!", self.at)
        self.at += length or indirect
        found = NAMED_IN_BRACES.match(self.chars, self.at)
        if not found:
            raise Unreadable(line, "${ without a name")
        self.at = found.end()
        index = ""
        if bracket := INDEX.match(self.chars, self.at):
            index, self.at = bracket[1], bracket.end()
        sign = OPERATOR.match(self.chars, self.at)
        operator = sign[0] if sign else ""
        self.at += len(operator)
        argument = self._argument(line)
        name = f"!{found[0]}" if indirect else found[0]
        return Parameter(name, line, quoted, index, operator, argument, bool(length))

    def _argument(self, line: int) -> Word:
        """What stands before the brace that closes a parameter."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.wrong("expressions nested too deeply")
        parts: list[Part] = []
        while True:
            if self.at >= len(self.chars):
                raise Unreadable(line, "${ that is not closed")
            letter = self.chars[self.at]
            if letter == "}":
                self.at += 1
                self.depth -= 1
                return tuple(parts)
            if not self._quoting(letter, parts):
                found = IN_BRACES.match(self.chars, self.at)
                stop = found.end() if found else self.at + 1
                parts.append(Literal(self.text[self.at : stop], False))
                self.at = stop

    def parenthesis(self) -> Text:
        """Letters from a parenthesis to the one that closes it, quotes inside respected."""
        start, depth, quote = self.at, 0, ""
        while self.at < len(self.chars):
            letter = self.chars[self.at]
            if letter == "\\" and quote != "'":
                self.at += 1
            elif quote:
                quote = "" if letter == quote else quote
            elif letter in "'\"":
                quote = letter
            else:
                depth += {"(": 1, ")": -1}.get(letter, 0)
                if not depth:
                    self.at += 1
                    return self.text[start : self.at]
            self.at += 1
        raise Unreadable(self.text.lines[start], "a parenthesis that is not closed")

    def newline(self) -> None:
        """Go past a newline."""
        self.at += 1

    # letters

    def blanks(self, *, newlines: bool = False) -> None:
        """Go past blanks, line continuations and comments."""
        while self.at < len(self.chars):
            letter = self.chars[self.at]
            if letter in " \t\r":
                self.at += 1
            elif letter == "\\" and self.chars.startswith("\n", self.at + 1):
                self.at += 2
            elif letter == "\\" and (found := COMMENT_AFTER.match(self.chars, self.at)):
                self.remarks.append(
                    (self.line(), "the line is read on; bash ends it, since its \\ is not the last letter")
                )
                self.at = found.end() + 1
            elif letter == "#":
                self.at = self.end_of_line()
            elif letter == "\n" and newlines:
                self.newline()
            else:
                return

    def ahead(self, *words: str) -> bool:
        """Whether one of *words* stands here as a word of the shell."""
        for word in words:
            if self.chars.startswith(word, self.at):
                after = self.chars[self.at + len(word) : self.at + len(word) + 1]
                if not word[0].isalpha() or not (after.isalnum() or after in tuple("_-=/.")):
                    return word != "!" or after in " \t\n"
        return False

    def expect(self, word: str, of: str, *, plain: bool = False) -> None:
        if not self.ahead(word):
            where = self.chars[self.at : self.at + 12].split()
            found = f", but {where[0]!r} stands there" if where and not plain else ""
            raise self.wrong(f"{of} needs {word!r}{found}")
        self.at += len(word)

    def end_of_line(self) -> int:
        end = self.chars.find("\n", self.at)
        return len(self.chars) if end < 0 else end

    def line(self) -> int:
        """The line that is being read."""
        return self.text.lines[min(self.at, len(self.chars) - 1)] if self.chars else 0

    def wrong(self, message: str) -> Unreadable:
        """The exception about what stands here."""
        return Unreadable(self.line(), message)


def document(text: Text, depth: int = 0) -> Word:
    """*text* as it stands in double quotes or in a here-document: only expansions mean something."""
    parser = Words(text, depth)
    return tuple(parser.inside("", text.line))


def plain(word: Word) -> str:
    """The letters of a *word* without expansions or quotes; empty if it has some."""
    if all(isinstance(part, Literal) and not part.quoted for part in word):
        return "".join(part.text.chars for part in word if isinstance(part, Literal))
    return ""
