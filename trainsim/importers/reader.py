"""
A mapping read key by key on its way to findings: whatever nobody looked at is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainsim.documents.catalogue import exists
from trainsim.documents.document import Document
from trainsim.documents.origin import dotted, value_at
from trainsim.errors import TrainsimError, nearest, shorten
from trainsim.importers.findings import Fact, Findings, Reference, Remark, flattened
from trainsim.importers.importer import Effect, Key
from trainsim.importers.matching import match, meant

LARGEST = 1 << 53
OFF = (False, None, "", "no", "none", "false")
"""Values that mean that nothing was asked for."""
WORDS = {"true": True, "false": False, "yes": True, "no": False}


class Reader:
    """Typed access to the keys of a *document*; every complaint names file, line and key.

    Keys are dotted. Every method that reads gives None where the key is not there or null, and marks it as looked at.
    Where a format has several spellings of its top-level keys, *spelling* makes one of them; remarks keep the file's.
    """

    def __init__(self, document: Document, keys: Iterable[Key], spelling: Callable[[str], str] = str):
        self.document = document
        self._keys = tuple(keys)
        self._exact = {known.name: known for known in self._keys if "*" not in known.name}
        self._patterns = [known for known in self._keys if "*" in known.name]
        self._spelling = spelling
        self._own: dict[str, str] = {}
        for name in document.data:
            if (one := self._own.setdefault(spelling(name), name)) != name:
                raise document.fail((name,), f"is already given as {one}; keep one")
        self._seen: set[str] = set()
        self._facts: list[Fact] = []
        self._notes: dict[str, list[Remark]] = {"used": [], "ignored": [], "warnings": [], "defaults": []}
        self._references: list[Reference] = []

    # reading

    def raw(self, key: str) -> Any:
        """The value at *key* as it stands in the file."""
        key = self.own(key)
        self._seen.add(key)
        return value_at(self.document.data, tuple(key.split(".")))

    def has(self, key: str) -> bool:
        """Whether there is a value at *key* that is not null; does not mark it."""
        return self.peek(key) is not None

    def peek(self, key: str) -> Any:
        """The value at *key*; does not mark it."""
        return value_at(self.document.data, tuple(self.own(key).split(".")))

    def own(self, key: str) -> str:
        """*key* as the file spells it."""
        first, dot, rest = key.partition(".")
        return f"{self._own.get(first, first)}{dot}{rest}"

    def whole(self, key: str, *, low: int = 1, besides: Sequence[str] = ()) -> Any:
        """A whole number of at least *low*, or one of the words *besides*. ``5e8`` and ``"8"`` are whole numbers."""
        value = self.raw(key)
        if value is None or (isinstance(value, str) and value in besides):
            return value
        number = _number(value)
        if number is None or number != int(number):
            also = f" or {' or '.join(besides)}" if besides else ""
            raise self.fail(key, f"expected a whole number{also}, found {shorten(value)}{_choices(value)}")
        if not low <= number <= LARGEST:
            raise self.fail(key, f"{shorten(value)} is out of range; it must be at least {low}")
        return int(number)

    def number(self, key: str, *, low: float = 0.0, high: float = float("inf"), besides: Sequence[str] = ()) -> Any:
        """A number in [low, high], or one of the words *besides*."""
        value = self.raw(key)
        if value is None or (isinstance(value, str) and value in besides):
            return value
        number = _number(value)
        if number is None:
            raise self.fail(key, f"expected a number, found {shorten(value)}{_choices(value)}")
        if not low <= number <= high:
            bounds = f"from {low:g} to {high:g}" if high < float("inf") else f"at least {low:g}"
            raise self.fail(key, f"{shorten(value)} is out of range; it must be {bounds}")
        return number

    def flag(self, key: str, *, besides: Sequence[str] = ()) -> Any:
        """True or false, also as a word in any case or as 0 and 1; or one of the words *besides*."""
        value = self.raw(key)
        if value is None or isinstance(value, bool) or (isinstance(value, str) and value in besides):
            return value
        if isinstance(value, int) and value in (0, 1):
            return bool(value)
        if isinstance(value, str) and value.casefold() in WORDS:
            return WORDS[value.casefold()]
        raise self.fail(key, f"expected true or false, found {shorten(value)}{_choices(value)}")

    def text(self, key: str) -> str | None:
        """A word or any other text."""
        value = self.raw(key)
        if value is not None and not isinstance(value, str):
            raise self.fail(key, f"expected a word, found {shorten(value)}{_choices(value)}")
        return value

    def word(self, key: str, known: Iterable[str]) -> str | None:
        """One of the words *known*, in any case; as it stands among *known*."""
        value, known = self.text(key), list(known)
        if value is None:
            return None
        spelled = {name.casefold(): name for name in known}
        if value.casefold() not in spelled:
            near = nearest(value, known)
            hint = f" Did you mean {near!r}?" if near else ""
            raise self.fail(key, f"{shorten(value)} is not known.{hint} Known: {', '.join(known)}.")
        return spelled[value.casefold()]

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        """A mapping; its keys are read by themselves."""
        value = self.peek(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.fail(key, f"expected a mapping (key: value), found {shorten(value)}")
        return value

    def mapping_or_flag(self, key: str) -> Mapping[str, Any] | bool | None:
        """A mapping, or true or false in its place."""
        value = self.peek(key)
        return value if isinstance(value, bool) else self.mapping(key)

    def listing(self, key: str) -> list[Any] | None:
        """A list."""
        value = self.raw(key)
        if value is not None and not isinstance(value, list):
            raise self.fail(key, f"expected a list, found {shorten(value)}")
        return value

    def fail(self, key: str, message: str) -> TrainsimError:
        """The exception to raise about the value at *key*."""
        return self.document.fail(tuple(self.own(key).split(".")), message)

    # writing

    def say(self, key: str, value: Any, *sources: str, weak: bool = False) -> None:
        """The scenario's *key* is *value* because of the file's keys *sources*; None says nothing."""
        if value is None:
            return
        place, source = (self.place(sources[0]), self.own(sources[0])) if sources else (self.document.origin.file, "")
        leaves = flattened(key, value)
        self._facts += [Fact(key=k, value=v, place=place, source=source, weak=weak) for k, v in leaves]
        for name in sources:
            if self.has(name):
                self._note("used", name, f"{key} = {_short(value)}")

    def assume(self, key: str, value: Any, whose: str) -> None:
        """The scenario's *key* is *value* where no file says otherwise; *whose* default it is."""
        self._facts.append(Fact(key=key, value=value, place=self.document.origin.file, source=whose, weak=True))

    def use(self, key: str, words: str) -> None:
        """The file's *key* was used: *words* say for what."""
        self._seen.add(self.own(key))
        self._note("used", key, words)

    def ignore(self, key: str, words: str) -> None:
        """The file's *key* has no effect on speed and memory here."""
        self._seen.add(self.own(key))
        self._note("ignored", key, words)

    def warn(self, key: str, words: str) -> None:
        """The file's *key* would have an effect that is not modelled."""
        self._seen.add(self.own(key))
        self._note("warnings", key, words)

    def leave_open(self, key: str, ours: str, words: str) -> None:
        """The file's *key* leaves the scenario's key *ours* open: *words* say why."""
        self._seen.add(self.own(key))
        words = f"leaves {ours} open: {words}"
        self._notes["defaults"].append(Remark(key=self.own(key), words=words, place=self.place(key), about=ours))

    def refer(self, key: str, words: str) -> None:
        """The file's *key* names another file, which would say *words*."""
        path = self.text(key)
        if path:
            self.refer_to(Path(path), key, words)

    def refer_to(self, path: Path, key: str, words: str) -> None:
        """The file at *path*, seen from this one, belongs to it because of its *key*; it would say *words*."""
        self._references.append(Reference(path=path, key=key, place=self.place(key), words=words))

    def finds(self, path: Path) -> bool:
        """Whether there is a file at *path*, seen from this one."""
        file = self.document.origin.folder / path
        return exists(file) and file.is_file()

    def noted(self, key: str) -> bool:
        """Whether something was said about *key* already."""
        return any(remark.key == self.own(key) for notes in self._notes.values() for remark in notes)

    def adopt(self, section: str, said: Findings) -> None:
        """All that *said* tells of the mapping at *section*, which is of another tool."""
        self._seen.add(self.own(section))
        self._facts += said.facts
        self._references += said.references
        for kind, notes in self._notes.items():
            notes += [replace(remark, key=f"{section}.{remark.key}") for remark in getattr(said, kind)]

    def place(self, key: str) -> str:
        """``file:line`` of *key*."""
        return self.document.origin.place(tuple(self.own(key).split("."))).removesuffix(": ")

    # the end

    def findings(self, importer: str) -> Findings:
        """All that was said, with a remark about every key that nobody looked at."""
        self._rest()
        for key, line in self.document.repeated.items():
            self._note("warnings", dotted(key), f"appears twice, first in line {line}; the last one counts")
        told = {name: tuple(dict.fromkeys(notes)) for name, notes in self._notes.items()}
        return Findings(
            importer=importer,
            file=self.document.origin.file,
            facts=tuple(self._facts),
            references=tuple(self._references),
            used=told["used"],
            ignored=told["ignored"],
            warnings=told["warnings"],
            defaults=told["defaults"],
        )

    def _note(self, kind: str, key: str, words: str) -> None:
        self._notes[kind].append(Remark(key=self.own(key), words=words, place=self.place(key)))

    def _rest(self) -> None:
        noted = {remark.key for notes in self._notes.values() for remark in notes}
        whole = {remark.key for kind, notes in self._notes.items() if kind != "defaults" for remark in notes}
        for key, value in leaves(self.document.data):
            if key in noted or _above(key, whole):
                continue
            first, dot, rest = key.partition(".")
            usual = f"{self._spelling(first)}{dot}{rest}"
            known = self._exact.get(usual) or match(usual, self._patterns)
            if known is None:
                if key in self._seen or _above(key, self._seen):
                    self._note("ignored", key, "off" if value in OFF else "without effect beside the other values")
                else:
                    self._unknown(key)
            elif known.effect is Effect.MISSING and value not in known.harmless:
                self._note("warnings", key, f"not modelled: {known.words}")
            elif known.effect is Effect.READ:
                self._note("ignored", key, "off" if value in OFF else "without effect beside the other values")
            else:
                self._note("ignored", key, known.words if known.effect is Effect.NONE else "as it is modelled, or off")

    def _unknown(self, key: str) -> None:
        near = meant(key, list(self._exact))
        hint = f"; did you mean {near}?" if near else ""
        self._note("warnings", key, f"unknown key, ignored{hint}")


def leaves(data: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything in nested mappings that is no mapping, and of empty mappings.

    >>> list(leaves({"a": {"b": 1, "c": []}, "d": {}}))
    [('a.b', 1), ('a.c', []), ('d', {})]
    """
    for name, value in data.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{key}.")
        else:
            yield key, value


def _above(key: str, known: set[str]) -> bool:
    """Whether *known* holds a section that *key* stands in."""
    parts = key.split(".")
    return any(".".join(parts[:n]) in known for n in range(1, len(parts)))


def _number(value: Any) -> float | None:
    """A finite number, also one that is written as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value.replace("_", "")) if isinstance(value, str) else float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < float("inf") else None


def _choices(value: Any) -> str:
    return "; a list is for a tuner to choose from: write one value" if isinstance(value, list) else ""


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_short(v)}" for k, v in value.items()) + "}"
    return value if isinstance(value, str) else shorten(value)
