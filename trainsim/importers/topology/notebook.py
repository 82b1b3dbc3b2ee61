"""
What a file that is no mapping says of a machine: facts, and a remark about each thing in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainsim.errors import ScenarioError
from trainsim.importers.findings import Fact, Findings, Observation, Remark, flattened
from trainsim.importers.source import Source

MACHINE = "cluster.topology"
"""The key of a scenario under which a machine stands."""
MOST_REMARKS = 400
"""Of a kind, beyond which only their number is told."""


class Notebook:
    """Collects what the file *source* says; every remark has its line.

    Keys of remarks are the file's own words for a thing (``system.cpu.pci``); keys of facts are those of a topology.
    """

    def __init__(self, source: Source):
        self.source = source
        self._facts: list[Fact] = []
        self._notes: dict[str, list[Remark]] = {"used": [], "ignored": [], "warnings": [], "defaults": []}

    def place(self, line: int = 0) -> str:
        """``file:line``."""
        return f"{self.source.shown}:{line}" if line else self.source.shown

    def fail(self, message: str, line: int = 0) -> ScenarioError:
        """The exception to raise about a *line*."""
        return ScenarioError(f"{self.place(line)}: {message}")

    def say(self, key: str, value: Any, because: str, line: int = 0) -> None:
        """The topology's *key* is *value* because of what is called *because* in the file; None says nothing."""
        if value is None:
            return
        for leaf, inner in flattened(f"{MACHINE}.{key}", value):
            self._facts.append(Fact(key=leaf, value=inner, place=self.place(line), source=because))

    def assume(self, key: str, value: Any, why: str) -> None:
        """The topology's *key* is *value* unless somebody says otherwise; *why* is told."""
        for leaf, inner in flattened(f"{MACHINE}.{key}", value):
            self._facts.append(Fact(key=leaf, value=inner, place=self.source.shown, source=why, weak=True))

    def use(self, key: str, words: str, line: int = 0) -> None:
        """*key* of the file was used: *words* say for what."""
        self._note("used", key, words, line)

    def ignore(self, key: str, words: str, line: int = 0) -> None:
        """*key* of the file has no effect here."""
        self._note("ignored", key, words, line)

    def warn(self, key: str, words: str, line: int = 0) -> None:
        """*key* of the file would have an effect that is not modelled, or contradicts another one."""
        self._note("warnings", key, words, line)

    def leave_open(self, ours: str, words: str) -> None:
        """The file does not say the topology's key *ours*: *words* say why and how to say it."""
        about = f"{MACHINE}.{ours}"
        self._notes["defaults"].append(Remark(key=about, words=words, place=self.source.shown, about=about))

    def note(self, key: str, words: str, line: int = 0) -> None:
        """Something that was taken for granted, which is no value of a key."""
        self._notes["defaults"].append(Remark(key=key, words=words, place=self.place(line), about=f"{MACHINE}.note"))

    def findings(self, importer: str, observed: Iterable[Observation] = ()) -> Findings:
        """All that was said."""
        told = {name: tuple(dict.fromkeys(notes)) for name, notes in self._notes.items()}
        return Findings(
            importer=importer,
            file=self.source.shown,
            facts=tuple(self._facts),
            observed=tuple(observed),
            used=told["used"],
            ignored=told["ignored"],
            warnings=told["warnings"],
            defaults=told["defaults"],
        )

    def _note(self, kind: str, key: str, words: str, line: int) -> None:
        notes = self._notes[kind]
        if len(notes) < MOST_REMARKS:
            notes.append(Remark(key=key, words=words, place=self.place(line)))
        elif len(notes) == MOST_REMARKS:
            notes.append(Remark(key="...", words=f"more than {MOST_REMARKS} remarks of this kind", place=self.place()))
