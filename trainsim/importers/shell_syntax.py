"""
Bash as a tree. Nothing is run and nothing looked up here.
"""

from __future__ import annotations

import re
from typing import Final

from trainsim.importers.shell_commands import Commands
from trainsim.importers.shell_tree import (
    Case,
    Command,
    For,
    Function,
    If,
    Loop,
    ShellChain,
    ShellGroup,
    ShellSum,
    Statement,
    Unreadable,
    Word,
)
from trainsim.importers.shell_words import DEEPEST

NAME = re.compile(r"[A-Za-z_]\w*")
RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|for|while|until|select|do|done|case|esac|function|\{|\}|!)(?=[\s;&|()]|$)"
)
DEFINITION = re.compile(r"([^\s(){};&|<>$'\"`=\\]+)[ \t]*\([ \t]*\)")
FUNCTION = re.compile(r"[^\s(){};&|]+")
ENDS: Final = ("then", "elif", "else", "fi", "do", "done", "esac", "}", ")", ";;")


class Parser(Commands):
    """Reads a text into statements."""

    def whole(self) -> list[Statement]:
        """All statements of the text."""
        found = self.statements()
        while self.at < len(self.chars):  # something closes that nobody opened
            self.remarks.append((self.line(), f"{self.chars[self.at : self.at + 8].split()[0]!r} closes nothing"))
            self.at = max(self.at + 1, self.end_of_line())
            found += self.statements()
        return found

    def statements(self) -> list[Statement]:
        """Statements up to a word that ends a block."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.wrong("blocks nested too deeply")
        found: list[Statement] = []
        while True:
            self._between()
            if self.at >= len(self.chars) or self.ahead(*ENDS):
                break
            start = self.at
            found.append(self._chain())
            if self.at == start:
                raise self.wrong(f"{self.chars[self.at]!r} is not expected here")
        self.depth -= 1
        return found

    def _between(self) -> None:
        """Go past blanks, newlines and separators."""
        while True:
            self.blanks()
            if self.chars.startswith(";;", self.at):
                return
            if self.at < len(self.chars) and self.chars[self.at] == "\n":
                self.newline()
            elif self.at < len(self.chars) and self.chars[self.at] in ";&":
                self.at += 1
            else:
                return

    def _chain(self) -> ShellChain:
        links: list[tuple[str, bool, list[Command]]] = []
        sign = ""
        while True:
            self.blanks(newlines=bool(sign))
            negated = self.ahead("!")
            if negated:
                self.at += 1
                self.blanks()
            links.append((sign, negated, self._pipeline()))
            self.blanks()
            sign = self.chars[self.at : self.at + 2]
            if sign not in ("&&", "||"):
                return ShellChain(links)
            self.at += 2

    def _pipeline(self) -> list[Command]:
        commands = [self._command()]
        while True:
            self.blanks()
            if not self.chars.startswith("|", self.at) or self.chars.startswith("||", self.at):
                return commands
            self.at += 2 if self.chars.startswith("|&", self.at) else 1
            self.blanks(newlines=True)
            commands.append(self._command())

    def _command(self) -> Command:
        line = self.line()
        if self.chars.startswith("((", self.at) and self.closes(self.at + 2):
            return ShellSum(line, self.sum(2))
        if self.chars.startswith("(", self.at):
            self.at += 1
            group = ShellGroup(self.statements())
            self.expect(")", "a parenthesis")
            return self.with_redirections(group)
        if found := DEFINITION.match(self.chars, self.at):
            self.at = found.end()
            return Function(found[1], self._function_body(line))
        found = RESERVED.match(self.chars, self.at)
        word = found[0] if found else ""
        if word:
            self.at += len(word)
            if word == "if":
                return self._if()
            if word == "case":
                return self._case(line)
            if word == "function":
                return self._function(line)
            if word == "{":
                group = ShellGroup(self.statements())
                self.expect("}", "a brace")
                return self.with_redirections(group)
            return self._for(line) if word in ("for", "select") else self._while(line)
        return self.simple()

    def _if(self) -> If:
        branches: list[tuple[int, list[Statement], list[Statement]]] = []
        otherwise: list[Statement] = []
        while True:
            line = self.line()
            condition = self.statements()
            self.expect("then", "if")
            branches.append((line, condition, self.statements()))
            if self.ahead("elif"):
                self.at += 4
                continue
            if self.ahead("else"):
                self.at += 4
                otherwise = self.statements()
            self.expect("fi", "if")
            self.with_redirections(ShellGroup([]))
            return If(branches, otherwise)

    def _case(self, line: int) -> Case:
        self.blanks()
        word = self.word()
        self.blanks(newlines=True)
        self.expect("in", "case", plain=True)
        branches: list[tuple[list[Word], list[Statement]]] = []
        while True:
            self._between()
            if self.chars.startswith(";;", self.at):
                self.at += 2
            elif self.ahead("esac"):
                self.at += 4
                return Case(line, word, branches)
            elif self.at >= len(self.chars):
                raise Unreadable(line, "a case that is not closed by esac")
            else:
                branches.append((self._patterns(), self.statements()))

    def _patterns(self) -> list[Word]:
        patterns: list[Word] = []
        if self.chars.startswith("(", self.at):
            self.at += 1
        while True:
            self.blanks()
            start = self.at
            patterns.append(self.word())
            self.blanks()
            if self.chars.startswith(")", self.at):
                self.at += 1
                return patterns
            if not self.chars.startswith("|", self.at) or self.at == start:
                raise self.wrong("a pattern of case without its parenthesis")
            self.at += 1

    def _for(self, line: int) -> Command:
        self.blanks()
        if self.chars.startswith("((", self.at):
            self.sum(2)
            return Loop(line, self._body())
        found = NAME.match(self.chars, self.at)
        if not found:
            raise self.wrong("for without a name")
        self.at = found.end()
        self.blanks(newlines=True)
        words: list[Word] | None = None
        if re.match(r"in(?=\s|;)", self.chars[self.at : self.at + 3]):
            self.at += 2
            words = []
            self.blanks()
            while self.at < len(self.chars) and self.chars[self.at] not in "\n;&|":
                words.append(self.needed_word())
                self.blanks()
        return For(line, found[0], words, self._body())

    def _while(self, line: int) -> Loop:
        self.statements()
        return Loop(line, self._body())

    def _body(self) -> list[Statement]:
        self._between()
        self.expect("do", "a loop")
        body = self.statements()
        self.expect("done", "a loop")
        self.with_redirections(ShellGroup([]))
        return body

    def _function(self, line: int) -> Function:
        self.blanks()
        found = FUNCTION.match(self.chars, self.at)
        if not found:
            raise Unreadable(line, "function without a name")
        self.at = found.end()
        self.blanks()
        if self.chars.startswith("(", self.at):
            self.at += 1
            self.blanks()
            self.expect(")", "a function", plain=True)
        return Function(found[0], self._function_body(line))

    def _function_body(self, line: int) -> list[Statement]:
        self._between()
        body = self._command()
        if not isinstance(body, ShellGroup):
            raise Unreadable(line, "a function without a block in braces")
        return body.body
