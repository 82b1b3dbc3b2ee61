"""
An importer: how a format is recognised, what it knows of each key, and how a file becomes findings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trainsim.importers.findings import Findings
from trainsim.importers.source import Source
from trainsim.registry import Registry


class Effect(StrEnum):
    """What becomes of a key."""

    READ = "read"
    NONE = "no effect"
    MISSING = "not modelled"


@dataclass(frozen=True, slots=True)
class Key:
    """What an importer knows of a key of its format.

    ``name`` is dotted; ``*`` stands for any letters of one part of it and a ``**`` at the end for all below. ``words``
    say what a key that is read becomes, why one has no effect, or what of one is not modelled; that does not matter
    where the value is one of ``harmless``.
    """

    name: str
    effect: Effect
    words: str
    harmless: tuple[Any, ...] = ()


def read(name: str, becomes: str) -> Key:
    """A key that is read; *becomes* names the scenario's keys that follow from it."""
    return Key(name, Effect.READ, becomes)


def no_effect(why: str, *names: str) -> tuple[Key, ...]:
    """Keys without effect on speed and memory, and why."""
    return tuple(Key(name, Effect.NONE, why) for name in names)


def not_modelled(what: str, *names: str, harmless: tuple[Any, ...] = ()) -> tuple[Key, ...]:
    """Keys that would have an effect that is not modelled, except where their value is one of the *harmless*."""
    return tuple(Key(name, Effect.MISSING, what, (*harmless, None)) for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """One format. ``sniff`` says how sure it is (0 to 1) that a source is its own; ``load`` reads one.

    ``about`` says what the files are and who writes them, ``leaves_open`` what such a file never says, ``notes`` what
    is worth knowing.
    """

    name: str
    title: str
    about: str
    leaves_open: str
    keys: tuple[Key, ...]
    sniff: Callable[[Source], float]
    load: Callable[[Source], Findings]
    notes: tuple[str, ...] = ()


importers: Registry[Importer] = Registry("importer", "trainsim.importers.formats")
"""The formats that are known, by name."""


def register(importer: Importer) -> Importer:
    """Add *importer* to the registry."""
    return importers.register(importer.name)(importer)
