"""
Catalogues: a folder of data files of one kind, each found by its name, by a path, or written in place with a ``base``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainsim.documents.document import Document, read_file
from trainsim.documents.kept import KeptReading
from trainsim.documents.origin import Origin
from trainsim.errors import InvalidData, TrainsimError, UnknownName, nearest, shorten
from trainsim.plugins import Addition, BrokenPlugin, additions

PACKAGE = Path(__file__).parents[1]
Spec = str | Path | Mapping[str, Any]
"""How a thing is named: by its name in the catalogue, by the path of a file, or by the mapping itself."""
SUFFIXES = (".yaml", ".yml", ".json")
COMMON = ("name", "description", "source", "base", "aliases")
"""Keys that a file of any kind may have. ``aliases`` are other names under which it is found."""
OWN = ("name", "description", "aliases")
"""Keys that nobody takes over from a base."""
DEEP = 99
_FOLDERS: KeptReading[Mapping[str, Path]] = KeptReading()
MOST = 256  # documents to remember
Data = Mapping[str, Any]


def as_it_is(base: Data, over: Data) -> Data:
    """All of a base holds, whatever is laid over it."""
    return base


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A key that lays a whole document over the base of the one that has it: the first of two where it is true, else
    the second. ``otherwise`` says what to write over a base that knows nothing of it."""

    documents: tuple[Path, Path]
    otherwise: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The data files of one *kind* in the first of the ``folders`` that has some, and those that installed packages add
    under ``key``.

    A document may name a ``base``, or several of which the last one has the say, and say only what differs: mappings
    inside mappings are merged down to ``depth``. ``holds`` says what of a base still holds under a document that is
    laid over it. ``inner`` are the keys that name things of other catalogues; ``switches`` lay a document of their own
    between a base and what is said over it, where they differ from the base.
    """

    kind: str
    plural: str
    folders: tuple[Path, ...]
    depth: int = DEEP
    holds: Callable[[Data, Data], Data] = as_it_is
    inner: Mapping[str, Catalogue] = field(default_factory=dict)
    switches: Mapping[str, Switch] = field(default_factory=dict)
    error: type[TrainsimError] = InvalidData
    needs: str = ""
    key: str = ""

    @property
    def files(self) -> Mapping[str, Path]:
        """The file of each name, in order. Raises BrokenPlugin where a package adds a name that there is."""
        own = next((files for folder in self.folders if (files := _files(folder))), {})
        added = additions(self.key) if self.key else ()
        return self._joined(own, added) if added else own

    def _joined(self, own: Mapping[str, Path], added: tuple[Addition, ...]) -> Mapping[str, Path]:
        """*own* files and those that packages add, in the order of their names."""
        files, whose = dict(own), dict.fromkeys(own, "trainsim itself")
        for package, folder in added:
            more = _files(folder)
            if not more:
                raise BrokenPlugin(f"package {package} adds {self.plural}, and {folder} has no .yaml files")
            for name in more:
                if name in files:
                    raise BrokenPlugin(
                        f"package {package} adds a {self.kind} called {name!r}, and so does {whose[name]}: rename "
                        f"{more[name]}, or uninstall the package"
                    )
            files, whose = {**files, **more}, {**whose, **dict.fromkeys(more, f"package {package}")}
        return dict(sorted(files.items()))

    def names(self) -> tuple[str, ...]:
        """All that ship with the package."""
        return tuple(self.files)

    def descriptions(self) -> dict[str, str]:
        """A line about each name: its description, else the name that it gives itself."""
        return {name: _about(read_file(path, shown=self._shown(path)).data) for name, path in self.files.items()}

    def find(self, spec: Spec, *, origin: Origin | None = None) -> Document:
        """The document that *spec* means, on top of what it is based on.

        *origin* is that of a mapping that was written in place, and says where relative paths start. Raises UnknownName
        for a name that nobody knows and the catalogue's error for what cannot be read, both naming the place.
        """
        origin = origin or Origin()
        if not isinstance(spec, str | Path | Mapping):
            document = Document("", {}, origin, self.error)
            raise document.fail((), f"{shorten(spec)} is not a {self.kind}: expected a name, a path or a mapping")
        own = self._place(spec, origin) if isinstance(spec, Mapping) else self._file(spec, origin.folder)
        return self._merged(tuple(self._lineage(own, ())))

    def canonical(self, name: str) -> str:
        """The name of the file that has *name* among its aliases; any other name as it is."""
        if name in self.files:
            return name
        return next((file for file, others in self.aliases().items() if name in others), name)

    def aliases(self) -> dict[str, tuple[str, ...]]:
        """The other names under which each file is found."""
        return {name: _aliases(read_file(path, shown=self._shown(path)).data) for name, path in self.files.items()}

    def written(self, spec: Spec, *, origin: Origin | None = None) -> str | dict[str, Any]:
        """*spec* as it can be read anywhere: a name of the catalogue, else all that the document says."""
        if isinstance(spec, str) and self.canonical(spec) in self.files:
            return self.canonical(spec)
        document = self.find(spec, origin=origin)
        data = {"name": document.name, **document.data}
        for key, catalogue in self.inner.items():
            if isinstance(data.get(key), str | Mapping):
                data[key] = catalogue.written(data[key], origin=document.origin.part((key,)))
        return data

    def path(self, spec: str | Path, folder: Path = Path()) -> Path:
        """The file that a name or a path means; a path starts at *folder*, else where the program runs."""
        text, files = str(spec), self.files
        if isinstance(spec, str) and text in files:
            return files[text]
        path = Path(text)
        for candidate in (folder / path, path):
            if exists(candidate) and (_is_path(spec) or candidate.is_file()):
                return candidate
        if path.stem in files and path.parent in (Path(), Path(self.folders[0].name)):
            return files[path.stem]
        if (name := self.canonical(text)) in files:
            return files[name]
        if _is_path(spec):
            near = nearest(path.stem, files)
            hint = f" Did you mean {near!r}?" if near else ""
            shown = text if text.isprintable() else shorten(text)
            raise self.error(f"{shown}: no such file.{hint} Known {self.plural}: {', '.join(files)}.")
        raise UnknownName(self.kind, text, files)

    def _file(self, spec: str | Path, folder: Path) -> Document:
        path = self.path(spec, folder)
        return read_file(path, shown=self._shown(path), error=self.error, needs=self.needs)

    def _place(self, data: Mapping[str, Any], origin: Origin) -> Document:
        base = data.get("base")
        usual = f"{base}, changed" if isinstance(base, str) else f"own {self.kind}"
        name = data.get("name")
        return Document(name if isinstance(name, str) and name else usual, data, origin, self.error)

    def _lineage(self, document: Document, below: tuple[str, ...]) -> list[Document]:
        """The documents that make up *document*, the most general one first, each once."""
        given = document.data.get("base", [])
        out: list[Document] = []
        for base in [given] if isinstance(given, str) else given if isinstance(given, list) else [None]:
            if not isinstance(base, str):
                raise document.fail(("base",), f"expected the name of a {self.kind} or a path, not {shorten(given)}")
            try:
                parent = self._file(base, document.origin.folder)
            except UnknownName as error:
                raise document.fail(("base",), str(error)) from None
            if parent.origin.file in (document.origin.file, *below) and parent.origin.file:
                raise document.fail(("base",), f"{base} is based on itself")
            out += [d for d in self._lineage(parent, (*below, document.origin.file)) if d not in out]
        return [*out, *self._switched(document, out), document]

    def _switched(self, document: Document, below: list[Document]) -> Iterator[Document]:
        """What the switches of *document* lay over those *below* it; where there are none they only inform."""
        for key, switch in self.switches.items():
            value = document.data.get(key)
            if value is None or not below:
                continue
            if not isinstance(value, bool):
                raise document.fail((key,), f"expected true or false, not {shorten(value)}")
            before = next((d.data[key] for d in reversed(below) if key in d.data), None)
            if before is None:
                named = dict.fromkeys(d.name for d in below)
                raise document.fail((key,), f"{list(named)[-1]} {switch.otherwise}")
            if before != value:
                path = switch.documents[0 if value else 1]
                yield read_file(path, shown=f"{path.parent.name}/{path.name}")

    def _merged(self, lineage: tuple[Document, ...]) -> Document:
        """The last document on top of those before it."""
        own = lineage[-1]
        if len(lineage) == 1 and "base" not in own.data:
            return own  # itself, which knows its content once it was asked for
        key = (id(self), *map(id, lineage))
        if key not in _LAID:
            if len(_LAID) >= MOST:
                _LAID.clear()
            _LAID[key] = ((self, *lineage), self._laid(lineage))
        return _LAID[key][1]

    def _laid(self, lineage: tuple[Document, ...]) -> Document:
        own, data, origin = lineage[-1], lineage[0].data, lineage[0].origin
        for document in lineage[1:]:
            inherited = {key: value for key, value in data.items() if key not in OWN}
            data = merged(self.holds(inherited, document.data), document.data, self.depth)
            origin = replace(document.origin, below=origin)
        return replace(own, data={key: value for key, value in data.items() if key != "base"}, origin=origin)

    def _shown(self, path: Path) -> str:
        return f"{path.parent.name}/{path.name}" if path.parent in self.folders else str(path)


_LAID: dict[tuple[int, ...], tuple[tuple[Any, ...], Document]] = {}
"""What was laid over each other by its identity, which holds as long as it is kept here too, and what came of it."""


def _files(folder: Path) -> Mapping[str, Path]:
    """The data files of a folder by what they are called, in order; none where it is not there, or no folder."""
    try:
        return _FOLDERS.of(folder, lambda: _listed(folder))
    except OSError:
        return {}


def _listed(folder: Path) -> Mapping[str, Path]:
    files = (folder / name for name in os.listdir(folder) if name.endswith(".yaml"))
    return {file.stem: file for file in sorted(files, key=lambda file: file.stem)}


def merged(base: Any, over: Any, depth: int = DEEP) -> Any:
    """*over* on top of *base*, mappings inside mappings too, down to *depth*.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}), merged({"a": {"b": 1}}, {"a": {"c": 3}}, 0)
    ({'a': {'b': 1, 'c': 3}}, {'a': {'c': 3}})
    """
    if depth < 0 or not isinstance(base, Mapping) or not isinstance(over, Mapping):
        return over
    inner = {key: merged(base[key], value, depth - 1) if key in base else value for key, value in over.items()}
    return {**base, **inner}


def shipped(package: str, name: str) -> Document:
    """The one file of constants called *name* in a *package* of trainsim."""
    return read_file(PACKAGE / package / f"{name}.yaml", shown=f"{package}/{name}.yaml")


def folder_in(package: str, name: str = "") -> tuple[Path, ...]:
    """The folder *name* of data files inside a *package* of trainsim."""
    return (PACKAGE / package / name,)


def folder_beside(name: str) -> tuple[Path, ...]:
    """The folder *name* inside the installed package, else beside it in a checkout."""
    return (PACKAGE / name, PACKAGE.parent / name)


def _about(data: Mapping[str, Any]) -> str:
    return " ".join(str(data.get("description") or data.get("name") or "").split())


def _aliases(data: Mapping[str, Any]) -> tuple[str, ...]:
    given = data.get("aliases")
    return tuple(map(str, given)) if isinstance(given, list) else ()


def _is_path(spec: str | Path) -> bool:
    return isinstance(spec, Path) or "/" in spec or Path(spec).suffix in SUFFIXES


def exists(path: Path) -> bool:
    """Whether there is something at *path*; no for a name that no file system takes."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
