"""
The order in which a bash script's commands would run: conditions whose answer is known decide, the others are told.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal as Word_
from typing import TypeAlias

from trainsim.importers.shell_script import Script, read_directives
from trainsim.importers.shell_syntax import Parser
from trainsim.importers.shell_tests import Truth, matches
from trainsim.importers.shell_text import Text
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
    Simple,
    Unreadable,
)
from trainsim.importers.shell_values import MOST_LETTERS, Values, scheduler_values
from trainsim.importers.shell_words import plain

MOST_STATEMENTS = 20_000
DEEPEST = 6
ASSIGNED = re.compile(r"(?:^|[\s;(])([A-Za-z_]\w*)(?:\[[^\]\n]*\])?\+?=")
Status: TypeAlias = Truth | Word_["ran"]
"""How a command ended: a condition's truth, or ``ran`` where nobody can know."""


class Leave(Exception):
    """The script ends here, or a function of it."""


class Flow(ABC):
    """Walks through statements; what a simple command does is said by who inherits."""

    def __init__(self, text: Text):
        self.depth, self.budget, self.letters = 0, MOST_STATEMENTS, MOST_LETTERS
        self.functions: dict[str, Function] = {}
        self.values = Values(frozenset(ASSIGNED.findall(text.chars)))
        self.script = Script(variables=self.values)
        self.asked: Sequence[Text] = ()
        read_directives(text, self.script.directives)
        self.values.scalars |= scheduler_values(self.script.directives)

    @abstractmethod
    def simple(self, command: Simple) -> Status:
        """A command with words."""

    def tell(self, line: int, words: str) -> None:
        """What was not known or left out in *line*."""
        self.script.remarks.append((line, words))

    def text(self, text: Text) -> None:
        """All statements of *text*."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable(text.line, "scripts nested too deeply")
        self.letters -= len(text)
        if self.letters < 0:
            raise Unreadable(text.line, "too much text; does it source files endlessly?")
        parser = Parser(text)
        statements = parser.whole()
        self.script.remarks.extend(parser.remarks)
        try:
            self.all(statements)
        finally:
            self.depth -= 1

    def all(self, statements: Sequence[ShellChain]) -> Status:
        """Statements one after the other; how the last one ended."""
        status: Status = True
        for statement in statements:
            status = self.chain(statement)
        return status

    def chain(self, chain: ShellChain) -> Status:
        """Pipelines between ``&&`` and ``||``; after a condition that is not known neither goes on."""
        status: Status = True
        for sign, negated, commands in chain.links:
            if sign == "&&" and status in (False, None):
                continue
            if sign == "||" and status is not False:
                continue
            for command in commands:
                status = self.command(command)
            if len(commands) > 1:
                status = "ran"
            if negated and status != "ran":
                status = None if status is None else not status
        return status

    def command(self, command: Command) -> Status:
        """One command of any kind."""
        self.budget -= 1
        if self.budget < 0:
            raise Unreadable(0, "too many commands; does a loop never end?")
        if isinstance(command, Simple):
            return self.simple(command)
        if isinstance(command, ShellSum):
            value = self.values.sum(command.inside, command.line)
            self.asked = [value]
            return None if value.unknown else value.chars != "0"
        if isinstance(command, Function):
            self.functions[command.name] = command
        elif isinstance(command, If):
            self._if(command)
        elif isinstance(command, Case):
            self._case(command)
        elif isinstance(command, For):
            self._for(command)
        elif isinstance(command, Loop):
            self.tell(command.line, "the loop is not followed: how often it runs is not known")
        elif isinstance(command, ShellGroup):
            return self.all(command.body)
        return "ran"

    def _if(self, command: If) -> None:
        for line, condition, body in command.branches:
            status = self.all(condition)
            if status is True:
                self.all(body)
                return
            if status is not False and _matters([*body, *command.otherwise]):
                asked = " ".join(word.shown for word in self.asked) if status is None else "what a command answers"
                self.tell(line, f"it is not known whether {asked}; taken not to be so")
        self.all(command.otherwise)

    def _case(self, command: Case) -> None:
        word = self.values.text(command.word)
        chosen = None
        for patterns, body in command.branches:
            texts = [self.values.text(pattern).chars for pattern in patterns]
            if "*" in texts or (not word.unknown and any(matches(word.chars, text) for text in texts)):
                chosen = body
                break
        if word.unknown:
            rest = "its default (*) is taken" if chosen is not None else "no branch of the case is taken"
            self.tell(command.line, f"{word.shown} is not known; {rest}")
        self.all(chosen or [])

    def _for(self, command: For) -> None:
        if command.words is None:
            items = self.values.positional
        else:
            items = [item for word in command.words for item in self.values.fields(word)]
        if items is None or any(item.unknown for item in items):
            self.tell(command.line, f"what {command.name} stands for is not known; the loop is left out")
            return
        for item in items:
            self.values.set(command.name, item)
            self.all(command.body)


def _matters(body: Sequence[ShellChain]) -> bool:
    """Whether commands set a variable or start something."""
    simple = [c for chain in body for link in chain.links for c in link[2]]
    quiet = ("echo", "exit", "printf", "mkdir", "set", "unset", "rm")
    return any(not isinstance(c, Simple) or c.assignments or plain(c.words[0]) not in quiet for c in simple)
