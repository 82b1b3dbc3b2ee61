"""
Bash scripts that start a training program: which words it is started with. Nothing is executed.

Assignments, arrays, conditions and files that are sourced are followed as bash would; what only a running job knows
(arguments of the script, its environment, output of commands) stays unknown and is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar

from trainsim.documents.document import text_of
from trainsim.errors import ScenarioError, TrainsimError
from trainsim.importers.combining import relative_to
from trainsim.importers.shell_commands import DECLARERS
from trainsim.importers.shell_flow import DEEPEST, Flow, Leave, Status
from trainsim.importers.shell_script import Launch, Script, read_directives
from trainsim.importers.shell_tests import holds
from trainsim.importers.shell_text import NOTHING, Text, joined, not_known, of_file, said
from trainsim.importers.shell_tree import Assignment, Function, Redirection, Simple, Unreadable, Word

MOST_LAUNCHES = 64
SHELLS = ("bash", "sh", "zsh", "sbatch", "ssh", "srun", "pdsh")
RUNNERS = ("exec", "nohup", "time", "command", "builtin", "env", "sudo")


def read_script(content: str, *, shown: str = "", folder: Path = Path()) -> Script:
    """The script that *content* is, called *shown* in messages; files that it sources lie in *folder*.

    Raises ScenarioError, with the line, for what bash could not read either.

    >>> script = read_script("TP=4\\nARGS=(--tp $TP)\\npython run.py ${ARGS[@]} --seed $1")
    >>> [word.shown for word in script.launches[0].words]
    ['python', 'run.py', '--tp', '4', '--seed', '$1']
    """
    try:
        return _ShellRun(of_file(content), folder).script
    except Unreadable as fault:
        line = f":{fault.line}" if fault.line else ""
        raise ScenarioError(f"{shown}{line}: the script cannot be read: {fault}") from None


class _ShellRun(Flow):
    """One reading of a script from its first line to its last."""

    def __init__(self, text: Text, folder: Path):
        super().__init__(text)
        self.folder = folder
        self._before: tuple[Text, ...] = ()
        with suppress(Leave):
            self.text(text)

    # commands

    def simple(self, command: Simple) -> Status:
        words = [field for word in command.words for field in self.values.fields(word)]
        names = [word.chars for word in words]
        while names and names[0] in RUNNERS:
            names, words = names[1:], words[1:]
        name = names[0] if names else ""
        if not words or name in DECLARERS:
            self._assigned(command, exports=name == "export", names=names[1:])
            return True
        if name in ("[", "[[", "test"):
            inside = words[1:-1] if name != "test" else words[1:]
            self.asked = inside
            return holds(inside, patterns=name == "[[")
        if name in (":", "true", "false"):
            return name != "false"
        if action := self.ACTIONS.get(name):
            action(self, words, command.line)
            return "ran"
        if name in self.functions:
            self._call(self.functions[name], words[1:], command.line)
            return "ran"
        environment = {a.name: self._assigned_text(a) for a in command.assignments if not a.array}
        self._documents(command, names, words)
        self._start(words, environment, command.line)
        return "ran"

    def _assigned(self, command: Simple, *, exports: bool, names: Sequence[str]) -> None:
        for assignment in command.assignments:
            self.values.assign(assignment, command.line)
            if exports or assignment.name in self.script.exported:
                names = [*names, assignment.name]
        for name in names:
            value = self.values.value(name, command.line) if exports or name in self.script.exported else None
            if value is not None:
                self.script.exported[name] = value

    def _assigned_text(self, assignment: Assignment) -> Text:
        return self.values.text(tuple(part for part in assignment.value if not isinstance(part, tuple)))

    def _unset(self, words: list[Text], line: int) -> None:
        for word in words[1:]:
            self.values.unset(word.chars)
            self.script.exported.pop(word.chars, None)

    def _shift(self, words: list[Text], line: int) -> None:
        if self.values.positional:
            count = words[1].chars if len(words) > 1 else "1"
            self.values.positional = self.values.positional[int(count) if count.isdecimal() and len(count) < 5 else 1 :]

    def _set(self, words: list[Text], line: int) -> None:
        names = [word.chars for word in words]
        if "--" in names:
            self.values.positional = words[names.index("--") + 1 :]

    def _read(self, words: list[Text], line: int) -> None:
        for word in words[1:]:
            if word.chars.isidentifier():
                self.values.set(word.chars, not_known(f"${word.chars}", line))

    def _eval(self, words: list[Text], line: int) -> None:
        self.text(_with_blanks(words[1:], line))

    def _leave(self, words: list[Text], line: int) -> None:
        if words[0].chars == "exit" and not self.script.launches:
            self.tell(line, "the script ends here")
        raise Leave

    def _nothing(self, words: list[Text], line: int) -> None:
        """A command that starts nothing."""

    def _call(self, function: Function, words: list[Text], line: int) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unreadable(line, f"{function.name} calls itself, or functions are nested too deeply")
        before, self.values.positional = self.values.positional, words
        with suppress(Leave):
            self.all(function.body)
        self.values.positional = before
        self.depth -= 1

    def _source(self, words: list[Text], line: int) -> None:
        """``source FILE``: read as if it stood here, if it is there."""
        if len(words) < 2:
            return
        path = None if words[1].unknown else relative_to(Path(words[1].chars), self.folder)
        if path is None or self.depth == DEEPEST:
            self.script.absent.append((line, words[1].shown))
            return
        self._file(path, words, line)

    def _file(self, path: Path, words: list[Text], line: int) -> None:
        try:
            content = text_of(path, str(path), ScenarioError)
        except TrainsimError as fault:
            self.tell(line, str(fault))
            return
        self.script.sourced.append(path.name)
        before = self.values.positional
        self.values.positional = words[2:] or before
        text = of_file(content)
        self.text(said(text.chars, line))
        self.values.positional = before

    def _documents(self, command: Simple, names: list[str], words: list[Text]) -> None:
        """Here-documents: a file that ``cat`` writes, or commands for another shell."""
        for redirection in command.redirections:
            if redirection.body is None:
                continue
            body = self.values.text(redirection.body)
            if any(name in SHELLS for name in names):
                read_directives(body, self.script.directives)
                self.text(body)
            elif names[0] in ("cat", "tee"):
                target = _target(command.redirections, words, self.values.text)
                if target:
                    self.script.written[target.shown] = body

    def _start(self, words: list[Text], environment: dict[str, Text], line: int) -> None:
        """A program is started; a shell is followed into what it is told."""
        for k, word in enumerate(words[:-1]):
            if Path(word.chars[:200]).name in SHELLS and (inner := _inner(words[k + 1 :])):
                self._inside(words[:k], partial(self.text, inner))
                return
        for k, word in enumerate(words):
            if word.chars.endswith((".sh", ".slurm", ".sbatch")) and not word.unknown and self.depth < DEEPEST:
                path = relative_to(Path(word.chars), self.folder)
                if path and (k == 0 or Path(words[0].chars[:200]).name in SHELLS):
                    self._inside(words[:k], partial(self._file, path, [word, *words[k:]], line))
                    return
        if any(word.chars.startswith("--") for word in words) and len(self.script.launches) < MOST_LAUNCHES:
            first = next((word.line for word in words if word.line), line)
            exported = {**self.script.exported, **environment}
            self.script.launches.append(Launch((*self._before, *words), exported, first))

    def _inside(self, words: list[Text], follow: Callable[[], None]) -> None:
        """Another shell; the options of the ``srun`` before it belong to what it starts."""
        before = self._before
        if words and Path(words[0].chars[:200]).name == "srun":
            self._before = (*words,)
        follow()
        self._before = before

    ACTIONS: ClassVar[Mapping[str, Callable[[_ShellRun, list[Text], int], None]]] = {
        "unset": _unset, "shift": _shift, "set": _set, "read": _read, "mapfile": _read, "readarray": _read,
        "eval": _eval, "exit": _leave, "return": _leave, "source": _source, ".": _source, "cd": _nothing,
        "echo": _nothing, "printf": _nothing, "mkdir": _nothing, "trap": _nothing, "module": _nothing,
        "break": _nothing, "continue": _nothing, "pushd": _nothing, "popd": _nothing, "let": _nothing,
    }  # fmt: skip


def _with_blanks(words: Sequence[Text], line: int) -> Text:
    spaced = [piece for word in words for piece in (said(" ", word.line or line), word)][1:]
    return joined(spaced) if spaced else NOTHING


def _inner(words: Sequence[Text]) -> Text | None:
    """The commands that a shell is given with ``-c``."""
    for k, word in enumerate(words[:-1]):
        if not word.chars.startswith("-"):
            return None
        if re.fullmatch(r"-[a-z]*c", word.chars):
            return words[k + 1]
    return None


def _target(redirections: Sequence[Redirection], words: Sequence[Text], text: Callable[[Word], Text]) -> Text | None:
    """The file that a command with a here-document writes."""
    for redirection in redirections:
        if redirection.sign in (">", ">>", ">|"):
            return text(redirection.target)
    return words[1] if len(words) > 1 and words[0].chars == "tee" else None
