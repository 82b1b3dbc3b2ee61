"""
What a bash script consists of: commands with their words, conditions and loops.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainsim.importers.shell_text import Text


class Unreadable(ValueError):
    """Bash would not take the text either; ``line`` is where."""

    def __init__(self, line: int, message: str):
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Literal:
    """Letters that mean themselves."""

    text: Text
    quoted: bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """``${name[index]operator argument}``."""

    name: str
    line: int
    quoted: bool
    index: str = ""
    operator: str = ""
    argument: Word = ()
    length: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``$((...))``."""

    inside: Word
    line: int
    quoted: bool


@dataclass(frozen=True, slots=True)
class Substitution:
    """``$(...)``, a command whose output would stand there."""

    text: Text
    line: int
    quoted: bool


Part = Literal | Parameter | Arithmetic | Substitution
Word = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """``name=value``, ``name+=value``, ``name[index]=value``; a tuple of words is an array."""

    name: str
    append: bool
    value: Word | tuple[Word, ...]
    array: bool = False
    index: str = ""


@dataclass(frozen=True, slots=True)
class Redirection:
    """``> target``; the ``body`` of a here-document comes to it when its lines are read."""

    sign: str
    target: Word
    bodies: list[Word] = field(default_factory=list)

    @property
    def body(self) -> Word | None:
        """The here-document, if there is one."""
        return self.bodies[0] if self.bodies else None


@dataclass(frozen=True, slots=True)
class Simple:
    """A command and its words."""

    line: int
    assignments: list[Assignment] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ShellSum:
    """``((...))``."""

    line: int
    inside: Word


@dataclass(frozen=True, slots=True)
class If:
    """Conditions with what they lead to, and what is left; the line of each condition."""

    branches: list[tuple[int, list[Statement], list[Statement]]]
    otherwise: list[Statement]


@dataclass(frozen=True, slots=True)
class Case:
    """A word, and patterns with what they lead to."""

    line: int
    word: Word
    branches: list[tuple[list[Word], list[Statement]]]


@dataclass(frozen=True, slots=True)
class For:
    """A name and the words that it stands for, one after the other; None: the script's own arguments."""

    line: int
    name: str
    words: list[Word] | None
    body: list[Statement]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop whose number of rounds is not in its words."""

    line: int
    body: list[Statement]


@dataclass(frozen=True, slots=True)
class Function:
    """A name for commands."""

    name: str
    body: list[Statement]


@dataclass(frozen=True, slots=True)
class ShellGroup:
    """Commands in braces or parentheses."""

    body: list[Statement]
    redirections: list[Redirection] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ShellChain:
    """Pipelines between ``&&`` and ``||``; a pipeline may be negated."""

    links: list[tuple[str, bool, list[Command]]]


Command = Simple | ShellSum | If | Case | For | Loop | Function | ShellGroup
Statement = ShellChain
