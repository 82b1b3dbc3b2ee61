"""
Registries: one per idea that has several implementations.

A plugin is one file in the idea's package; the file's decorator registers it and nothing else has to be edited. Modules
of other installed packages can register things too (``trainsim.plugins``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Generic, TypeVar

from trainsim.errors import TrainsimError, UnknownName
from trainsim.plugins import import_modules

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A read-only mapping from name to implementation, filled by decorators.

    >>> shapes = Registry("shape")
    >>> @shapes.register("square", "quadrat")
    ... def square(side): return side * side
    >>> shapes["quadrat"](3), list(shapes)
    (9, ['square'])
    >>> shapes["sqare"]
    Traceback (most recent call last):
    trainsim.errors.UnknownName: No shape is called 'sqare'. Did you mean 'square'? Known: square.
    """

    def __init__(self, kind: str, package: str | None = None):
        self.kind = kind
        self._package = package
        self._discovered = False
        self._items: dict[str, T] = {}
        self._aliases: dict[str, str] = {}

    def register(self, name: str, *aliases: str) -> Callable[[T], T]:
        """Add the decorated thing under *name*; *aliases* are found but not listed."""

        def add(item: T) -> T:
            for any_name in (name, *aliases):
                if any_name in self._items or any_name in self._aliases:
                    raise ValueError(f"two {self.kind}s are called {any_name!r}")
            self._items[name] = item
            self._aliases.update(dict.fromkeys(aliases, name))
            return item

        return add

    def canonical(self, name: str) -> str:
        """The registered name behind *name*, which may be an alias."""
        items = self._discover()
        registered = name if name in items else self._aliases.get(name)
        if registered is None:
            raise UnknownName(self.kind, name, items)
        return registered

    def _discover(self) -> dict[str, T]:
        if not self._discovered:
            self._discovered = True
            package = import_module(self._package) if self._package else None
            for module in iter_modules(package.__path__) if package else ():
                import_module(f"{self._package}.{module.name}")
            try:
                import_modules()
            except TrainsimError:
                self._discovered = False  # who asks again is told again
                raise
        return self._items

    def __getitem__(self, name: str) -> T:
        return self._discover()[self.canonical(name)]

    def __contains__(self, name: object) -> bool:
        return name in self._discover() or name in self._aliases

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._discover()))

    def __len__(self) -> int:
        return len(self._discover())
