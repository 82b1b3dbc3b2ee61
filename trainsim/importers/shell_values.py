"""
Variables of a bash script, and what words with expansions come to. What only a running job knows stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from trainsim.importers.arithmetic import NoSum, Value, evaluate, number
from trainsim.importers.shell_text import NOTHING, Text, joined, not_known, said, split
from trainsim.importers.shell_tree import (
    Arithmetic,
    Assignment,
    Literal,
    Parameter,
    Part,
    Substitution,
    Unreadable,
    Word,
)

MOST_LETTERS = 4_000_000
MOST_ITEMS = 10_000
ENDLESS = "the script's variables grow without bound"
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
HERE = re.compile(
    r"""\s*(?:cd\s+)?(?:pwd|["']?\$\(\s*dirname\s.*\).*pwd|dirname\s+["']?(?:\$0|\$\{?BASH_SOURCE.*))\s*"""
)
"""Commands that say in which folder the script lies."""
PLACES = {"PWD": ".", "OLDPWD": "."}


class Values:
    """What variables hold.

    A name that the script assigns somewhere (``own``) is empty before; one that it never assigns comes from the
    environment and is unknown.
    """

    def __init__(self, own: frozenset[str] = frozenset()):
        self.own = own
        self.scalars: dict[str, Text] = {}
        self.arrays: dict[str, list[Text]] = {}
        self.positional: list[Text] | None = None
        self.letters = 0

    # setting

    def assign(self, assignment: Assignment, line: int) -> None:
        """What an assignment does."""
        name = assignment.name
        if assignment.array:
            words = [word for word in assignment.value if isinstance(word, tuple)]
            items = [item for word in words for item in self.fields(word)]
            before = self._items(name) if assignment.append else []
            if len(before) + len(items) > MOST_ITEMS:
                raise Unreadable(line, f"the array {name} is too long")
            self.arrays[name] = [*before, *items]
            self.scalars.pop(name, None)
            return
        value = self.text(tuple(part for part in assignment.value if not isinstance(part, tuple)))
        if assignment.index:
            self._set_item(name, assignment.index, value, line)
        elif name in self.arrays:
            self._set_item(
                name, "0", joined([self._item(name, "0", line), value]) if assignment.append else value, line
            )
        else:
            self.set(name, joined([self.scalars.get(name, NOTHING), value]) if assignment.append else value)

    def set(self, name: str, value: Text) -> None:
        """*name* is *value* from now on."""
        self.scalars[name] = value
        self.arrays.pop(name, None)

    def unset(self, name: str) -> None:
        """*name* holds nothing."""
        self.scalars[name] = NOTHING
        self.arrays.pop(name, None)

    def _set_item(self, name: str, index: str, value: Text, line: int) -> None:
        items = self.arrays.setdefault(name, self._items(name))
        at = self._index(index)
        if at is None or not -len(items) <= at < MOST_ITEMS:
            items.append(value)
            return
        items.extend([NOTHING] * (at + 1 - len(items)))
        items[at] = value

    def _index(self, index: str) -> int | None:
        value = self._sum(said(index.lstrip("$"), 0))
        return value if isinstance(value, int) else None

    # looking up

    def _items(self, name: str) -> list[Text]:
        if name in self.arrays:
            return list(self.arrays[name])
        return [self.scalars[name]] if self.scalars.get(name) else []

    def _item(self, name: str, index: str, line: int) -> Text:
        items, at = self._items(name), self._index(index)
        if at is None:
            return not_known(f"${{{name}[{index}]}}", line)
        return items[at] if -len(items) <= at < len(items) else NOTHING

    def value(self, name: str, line: int) -> Text | None:
        """The value of *name*; None where nothing set it."""
        if name in self.arrays:
            return self.arrays[name][0] if self.arrays[name] else NOTHING
        if name in self.scalars:
            return self.scalars[name]
        if name in PLACES:
            return said(PLACES[name], line)
        if name.isdecimal():
            return said(".", line) if name == "0" else self._positional(int(name))
        return NOTHING if name in self.own else None

    def _positional(self, place: int) -> Text | None:
        if self.positional is None:
            return None
        return self.positional[place - 1] if place <= len(self.positional) else NOTHING

    # expanding

    def text(self, word: Word) -> Text:
        """All of *word* as one text, not split."""
        return self._counted(joined(self._whole(part) for part in word) if word else NOTHING)

    def fields(self, word: Word) -> list[Text]:
        """What *word* becomes: none, one or several words."""
        done: list[list[Text]] = []
        fresh = True  # whether the next letters start a word of their own
        for part in word:
            values = self._several(part) if isinstance(part, Parameter) else [self._whole(part)]
            whole = isinstance(part, Literal) or part.quoted
            for k, value in enumerate(values):
                fresh = fresh or k > 0 or (not whole and value.chars[:1].isspace())
                for j, piece in enumerate([value] if whole else split(value)):
                    if fresh or j:
                        done.append([])
                    done[-1].append(piece)
                    fresh = False
                fresh = fresh or (not whole and value.chars[-1:].isspace())
        return [self._counted(joined(pieces)) for pieces in done]

    def _whole(self, part: Part) -> Text:
        """The value of a *part* as one text."""
        if isinstance(part, Literal):
            return part.text
        if isinstance(part, Arithmetic):
            return self.sum(part.inside, part.line)
        if isinstance(part, Substitution):
            return self._substituted(part)
        pieces = self._several(part)
        spaced = [piece for item in pieces for piece in (said(" ", part.line), item)][1:]
        return joined(spaced) if spaced else NOTHING

    def _several(self, part: Parameter) -> list[Text]:
        """The values of a parameter: several for all items of an array, each a word of its own."""
        if part.length:
            found = self._all(part) if _all(part) else [self._one(part)]
            if any(item.unknown for item in found):
                return [not_known(f"${{#{part.name}}}", part.line)]
            return [said(str(len(found) if _all(part) else len(found[0])), part.line)]
        if _all(part) and not part.operator:
            return self._all(part)
        if _all(part) and part.operator in (":-", "-"):
            return self._all(part) or [self.text(part.argument)]
        return [self._one(part)]

    def _all(self, part: Parameter) -> list[Text]:
        if part.name in "@*":
            return self.positional or []
        if part.name in self.arrays or part.name in self.scalars or part.name in self.own:
            return self._items(part.name)
        return [not_known(f"${{{part.name}[@]}}", part.line)]

    def _one(self, part: Parameter) -> Text:
        """The value of a parameter after its operator."""
        if part.name[0] in "!#?$-*@" or part.operator in ("@", ":"):
            return not_known(f"${{{part.name}{part.operator}}}", part.line)
        found = self._item(part.name, part.index, part.line) if part.index else self.value(part.name, part.line)
        sign = part.operator.lstrip(":")
        if sign in ("-", "=", "?", "+") and part.operator:
            missing = found is None or (part.operator[0] == ":" and not found)
            if sign == "+":
                return NOTHING if missing else self.text(part.argument)
            if not missing:
                return found or NOTHING
            if sign == "?":
                return not_known(f"${part.name}", part.line)
            value = self.text(part.argument)
            if sign == "=":
                self.set(part.name, value)
            return value
        if found is None:
            return not_known(f"${part.name}", part.line)
        return _edited(found, part, self.text(part.argument)) if part.operator else found

    def _substituted(self, part: Substitution) -> Text:
        """What a command prints: known only where it says in which folder we are, or repeats its words."""
        command = part.text.chars.strip()
        if HERE.fullmatch(command):
            return said(".", part.line)
        return not_known(f"$({command})", part.line)

    # sums

    def sum(self, inside: Word, line: int) -> Text:
        """What an arithmetic expression comes to."""
        text = self.text(inside)
        if text.unknown:
            return not_known(f"$(({text.shown}))", line)
        value = self._sum(text)
        return said(str(value), line) if isinstance(value, int) else not_known(f"$(({text.shown}))", line)

    def _sum(self, text: Text) -> Value | None:
        names = {name: self._number(name) for name in set(IDENTIFIER.findall(text.chars[:2000]))}
        try:
            return evaluate(text.chars, names) if text.chars.strip() else 0
        except NoSum:
            return None

    def _number(self, name: str, depth: int = 0) -> int | float | None:
        value = self.value(name, 0)
        if value is None or value.unknown or depth > 4:
            return None
        chars = value.chars.strip()
        if IDENTIFIER.fullmatch(chars):
            return self._number(chars, depth + 1)
        try:
            return number(chars) if chars else 0
        except NoSum:
            return None

    def _counted(self, text: Text) -> Text:
        self.letters += len(text) + 1
        if self.letters > MOST_LETTERS:
            raise Unreadable(text.line, ENDLESS)
        return text


def _all(part: Parameter) -> bool:
    """Whether a parameter means all items of an array, or all arguments."""
    return part.index in ("@", "*") or (part.name in "@*" and not part.index)


def _edited(value: Text, part: Parameter, argument: Text) -> Text:
    """*value* after an operator that cuts or replaces."""
    chars, pattern = value.chars, argument.chars
    lower = {",,": str.lower, "^^": str.upper}.get(part.operator)
    if lower and not value.unknown:
        return Text(lower(chars), value.lines) if len(lower(chars)) == len(chars) else value
    if part.operator == "##" and pattern == "*/":
        return value[chars.rfind("/") + 1 :]
    if part.operator == "%" and pattern in ("/*", ".*"):
        cut = chars.rfind(pattern[0])
        return value[:cut] if cut >= 0 else value
    plain = not re.search(r"[*?\[]", pattern)
    if part.operator in ("#", "##") and plain:
        return value[len(pattern) :] if chars.startswith(pattern) else value
    if part.operator in ("%", "%%") and plain:
        return value[: len(chars) - len(pattern)] if chars.endswith(pattern) and pattern else value
    if part.operator in ("/", "//") and plain:
        return _replaced(value, part, pattern)
    return not_known(f"${{{part.name}{part.operator}{pattern}}}", part.line)


def _replaced(value: Text, part: Parameter, argument: str) -> Text:
    """*value* with one text in the place of another: ``${name/old/new}``."""
    old, _, new = argument.partition("/")
    count = value.chars.count(old) if old else 0
    if not count:
        return value
    count = count if part.operator == "//" else 1
    if len(value) + count * (len(new) - len(old)) > MOST_LETTERS:
        raise Unreadable(part.line, ENDLESS)
    return said(value.chars.replace(old, new, count), part.line)


def scheduler_values(directives: Mapping[str, Text]) -> dict[str, Text]:
    """What the job scheduler sets in the environment, as a script's *directives* ask for."""
    nodes, tasks = directives.get("nodes"), directives.get("ntasks-per-node")
    gpus = directives.get("gpus-per-node")
    out = {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_NTASKS_PER_NODE": tasks}
    out |= {"SLURM_GPUS_ON_NODE": gpus, "SLURM_GPUS_PER_NODE": gpus}
    if nodes and tasks and nodes.chars.isdecimal() and tasks.chars.isdecimal() and len(nodes) + len(tasks) < 15:
        out["SLURM_NTASKS"] = said(str(int(nodes.chars) * int(tasks.chars)), nodes.line)
    return {name: value for name, value in out.items() if value is not None}
