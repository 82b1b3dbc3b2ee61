"""
A file that somebody brings: its text, and what it is as JSON, TOML or YAML.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trainsim.documents.document import MOST_BYTES, Document, read_text, text_of
from trainsim.documents.other_formats import read_json_text, read_toml_text
from trainsim.errors import ScenarioError, TrainsimError
from trainsim.importers.not_read import kind_of


def read_yaml_text(
    text: str, *, file: str, folder: Path = Path(), error: type[TrainsimError] = ScenarioError
) -> Document:
    """YAML as other tools read it: of keys that stand twice the last one counts."""
    return read_text(text, file=file, folder=folder, error=error, last_counts=True)


WRITTEN = (".yaml", ".yml", ".toml")
"""What people write by hand."""
MOST_WRITTEN_BY_TOOLS = 1 << 24
"""Bytes of a file that a tool wrote: a graph, all cables of a network."""
READERS = {".json": read_json_text, ".toml": read_toml_text, ".yaml": read_yaml_text, ".yml": read_yaml_text}


@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """The text of a file, called ``shown`` in messages; files that it names lie in ``folder``.

    >>> source = Source(shown="ds.json", text='{"train_batch_size": 8}')
    >>> source.data, source.suffix
    ({'train_batch_size': 8}, '.json')
    """

    shown: str
    text: str
    folder: Path = Path()

    @property
    def name(self) -> str:
        """The name of the file without its folder."""
        return Path(self.shown).name

    @property
    def suffix(self) -> str:
        """What the file is written in by its name: ``.json``, ``.toml``, ``.yaml`` or something else."""
        return Path(self.shown).suffix.lower()

    @cached_property
    def document(self) -> Document:
        """The mapping in the file, with the line of every key. Raises ScenarioError that names file and line."""
        if self.suffix != ".json" and len(self.text) > MOST_BYTES:
            raise ScenarioError(f"{self.shown}: cannot be read: it is longer than {MOST_BYTES} bytes")
        reader = READERS.get(self.suffix) or (read_json_text if self.text.lstrip()[:1] == "{" else read_yaml_text)
        return reader(self.text, file=self.shown, folder=self.folder, error=ScenarioError)

    @cached_property
    def data(self) -> Mapping[str, Any]:
        """The mapping in the file; empty where it is none, for those who only look what it might be."""
        try:
            return self.document.data
        except TrainsimError:
            return {}

    def section(self, *names: str) -> Mapping[str, Any]:
        """The mapping under *names*; empty if there is none."""
        here: Any = self.data
        for name in names:
            here = here.get(name) if isinstance(here, Mapping) else None
        return here if isinstance(here, Mapping) else {}

    def has(self, *keys: str) -> int:
        """How many of the top-level *keys* there are."""
        return sum(key in self.data for key in keys)


def read_source(path: str | Path) -> Source:
    """The file at *path*. Raises ScenarioError for what is no text or too long."""
    path = Path(path)
    if path.is_file() and (kind := kind_of(path.name)):
        raise ScenarioError(f"{path}: {kind}")
    most = MOST_BYTES if path.suffix.lower() in WRITTEN else MOST_WRITTEN_BY_TOOLS
    return Source(shown=str(path), text=text_of(path, str(path), ScenarioError, most), folder=path.parent)
