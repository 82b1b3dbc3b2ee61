"""
Commands of bash: their words, what they assign, and where their input and output go.
"""

from __future__ import annotations

import re

from trainsim.importers.shell_text import Text
from trainsim.importers.shell_tree import Assignment, Literal, Redirection, ShellGroup, Simple, Unreadable, Word
from trainsim.importers.shell_words import Words, document, plain

ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\[[^\]\n]*\])?(\+?=)")
REDIRECTION = re.compile(r"(?:\d+|&)?(<<<|<<-?|>>|>\||<>|[<>]&|&>>?|[<>])")
SIGNS = re.compile(r"&&|\|\||[()<>]")
DECLARERS = ("export", "declare", "local", "readonly", "typeset")
"""Commands whose words may be assignments."""


class Commands(Words):
    """Reads commands of a text."""

    def __init__(self, text: Text, depth: int = 0):
        super().__init__(text, depth)
        self.pending: list[tuple[Redirection, str, bool, bool]] = []

    def simple(self) -> Simple:
        """A command with its words."""
        command = Simple(self.line())
        while True:
            self.blanks()
            if self.at >= len(self.chars) or self.chars[self.at] in "\n;|)":
                break
            if redirected := REDIRECTION.match(self.chars, self.at):
                self._redirect(command.redirections, redirected)
                continue
            if self.chars[self.at] == "&":
                break
            if self.chars[self.at] == "(":
                command.words.append((Literal(self.parenthesis(), False),))
                continue
            if not command.words and (found := ASSIGNED.match(self.chars, self.at)):
                command.assignments.append(self._assignment(found))
                continue
            word = self.needed_word()
            command.words.append(word)
            if len(command.words) == 1 and plain(word) == "[[":
                self._double_brackets(command)
            elif len(command.words) > 1 and plain(command.words[0]) in DECLARERS:
                self._declared(command)
        return command

    def _declared(self, command: Simple) -> None:
        """What ``export NAME=...`` assigns: an assignment in the place of a word."""
        word = command.words.pop()
        first = word[0] if word else None
        start = self.start
        if isinstance(first, Literal) and (found := ASSIGNED.match(self.chars, start)):
            self.at = start
            command.assignments.append(self._assignment(found))
        else:
            command.words.append(word)

    def _double_brackets(self, command: Simple) -> None:
        """Words up to ``]]``, where signs of the shell are words too."""
        while True:
            self.blanks(newlines=True)
            if self.at >= len(self.chars):
                raise Unreadable(command.line, "[[ without ]]")
            found = SIGNS.match(self.chars, self.at)
            if found:
                command.words.append((Literal(self.text[self.at : found.end()], False),))
                self.at = found.end()
                continue
            start = self.at
            word = self.word()
            if self.at == start:
                raise self.wrong(f"{self.chars[self.at]!r} is not expected in [[ ]]")
            command.words.append(word)
            if plain(word) == "]]":
                return

    def _assignment(self, found: re.Match[str]) -> Assignment:
        name, index, append = found[1], (found[2] or "")[1:-1], found[3] == "+="
        self.at = found.end()
        if not self.chars.startswith("(", self.at) or index:
            return Assignment(name, append, self.word(), index=index)
        line = self.line()
        self.at += 1
        words: list[Word] = []
        while True:
            self.blanks(newlines=True)
            if self.at >= len(self.chars):
                raise Unreadable(line, f"the array {name} is not closed")
            if self.chars[self.at] == ")":
                self.at += 1
                return Assignment(name, append, tuple(words), array=True)
            if self.chars[self.at] == "(":
                words.append((Literal(self.parenthesis(), False),))
            elif self.chars[self.at] in ";&|<>":
                raise self.wrong(f"{self.chars[self.at]!r} inside the array {name}")
            else:
                words.append(self.needed_word())

    def _redirect(self, into: list[Redirection], found: re.Match[str]) -> None:
        sign = found[1]
        self.at = found.end()
        self.blanks()
        start = self.at
        if self.chars.startswith("(", self.at):  # <(command)
            into.append(Redirection(sign, (Literal(self.parenthesis(), True),)))
            return
        target = self.word()
        redirection = Redirection(sign, target)
        into.append(redirection)
        if sign in ("<<", "<<-"):
            raw = self.chars[start : self.at]
            quoted = any(mark in raw for mark in "'\"\\")
            delimiter = re.sub(r"['\"\\]", "", raw)
            self.pending.append((redirection, delimiter, quoted, sign == "<<-"))

    def with_redirections(self, group: ShellGroup) -> ShellGroup:
        """*group* and the redirections that follow it."""
        while True:
            self.blanks()
            found = REDIRECTION.match(self.chars, self.at)
            if not found:
                return group
            self._redirect(group.redirections, found)

    def newline(self) -> None:
        """Go past a newline, and past the here-documents that start after it."""
        self.at += 1
        pending, self.pending = self.pending, []
        for redirection, delimiter, quoted, tabs in pending:
            start = self.at
            while True:
                end = self.chars.find("\n", self.at)
                last = end < 0
                line = self.chars[self.at : len(self.chars) if last else end]
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    body = self.text[start : self.at]
                    self.at = len(self.chars) if last else end
                    break
                if last:
                    self.remarks.append((self.text.lines[start - 1], f"a here-document that {delimiter} does not end"))
                    body = self.text[start:]
                    self.at = len(self.chars)
                    break
                self.at = end + 1
            redirection.bodies.append((Literal(body, True),) if quoted else document(body, self.depth))
