"""The reference of data files that are read into dataclasses: GPUs, frameworks, optimizers, kernels, frozen weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_origin

from trainsim.documents.building import keys_of
from trainsim.documents.catalogue import Catalogue
from trainsim.documents.part import REQUIRED as HAS_NO_DEFAULT
from trainsim.frameworks import FRAMEWORKS, Framework
from trainsim.hardware.gpu import GPU, GPUS
from trainsim.hardware.kernel_constants import (
    KERNELS,
    AttentionConstants,
    GemmConstants,
    KernelConstants,
    MemoryBoundConstants,
)
from trainsim.models.weight_types import WEIGHT_TYPES, WeightType
from trainsim.optimizers import OPTIMIZERS, Optimizer
from website.descriptions import descriptions
from website.key import LONGEST, REQUIRED, Key, table, written
from website.words import of_type, section_in

COMMON = (
    Key("base", "text", "", "left out", "The file of the catalogue that this one starts from; it says what differs"),
    Key("source", "text", "", "empty", "Where the values come from"),
    Key("description", "text", "", "empty", "One line for `trainsim list`"),
    Key("aliases", "list of text", "", "empty", "Other names under which it is found"),
)
"""What every data file may have beside its own keys."""
NAMED = re.compile(r"``(\w+)``")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A kind of data file: its page, the value that it becomes, its catalogue, and an entry to take examples from."""

    title: str
    kind: type[Any]
    catalogue: Catalogue
    example: str
    inner: tuple[tuple[str, type[Any]], ...] = ()


FILES = {
    "gpu-keys": DataFile(title="a GPU file", kind=GPU, catalogue=GPUS, example="h100-sxm5-80gb"),
    "framework-keys": DataFile(
        title="a framework profile", kind=Framework, catalogue=FRAMEWORKS, example="megatron-core"
    ),
    "optimizer-keys": DataFile(title="an optimizer file", kind=Optimizer, catalogue=OPTIMIZERS, example="adam"),
    "kernel-keys": DataFile(
        title="a set of kernel constants",
        kind=KernelConstants,
        catalogue=KERNELS,
        example="hopper",
        inner=(("gemm", GemmConstants), ("attention", AttentionConstants), ("memory_bound", MemoryBoundConstants)),
    ),
    "weight-keys": DataFile(title="a type of frozen weights", kind=WeightType, catalogue=WEIGHT_TYPES, example="nf4"),
}
"""Kinds of data files by the page of the reference."""
WRITTEN = {KernelConstants: ("gemm", "attention", "memory_bound", "sustained", "run")}
"""Keys of a file, where they are not the fields of its value."""


def page(file: DataFile) -> str:
    """The page of one kind of file, as Markdown."""
    names = ", ".join(f"`{name}`" for name in file.catalogue.names()[:6])
    parts = [
        f"# Every key of {file.title}",
        f"Made from the classes that such files are read into. {len(file.catalogue.names())} ship ({names}, ...); the "
        f"examples are those of `{file.example}`. A file of your own is laid over the one that it names as its `base`; "
        "it need only say what differs.",
    ]
    for path, kind, keys in sections(file):
        rows = [*keys, *(() if path else COMMON)]
        parts += [
            f"## {path or 'The file'}",
            " ".join(_about(kind).replace("``", "`").split()),
            table(rows, examples=True),
        ]
    return "\n\n".join(parts) + "\n"


def sections(file: DataFile) -> Iterator[tuple[str, type[Any], list[Key]]]:
    """(Path, class, keys) of the file and of every mapping in it."""
    data = file.catalogue.find(file.example).data
    yield from _sections(file.kind, "", data, dict(file.inner))


def _sections(
    kind: type[Any], path: str, data: Any, inner: dict[str, type[Any]]
) -> Iterator[tuple[str, type[Any], list[Key]]]:
    said, about = descriptions(kind), _about(kind)
    known = keys_of(kind)
    names = [name for name in WRITTEN.get(kind, known) if name not in ("name", "source")]
    keys, below = [], []
    for name in names:
        hint, default = known[name]
        full = f"{path}.{name}" if path else name
        value = data.get(name) if isinstance(data, dict) else None
        words, unit = of_type(hint) if name != "kernels" else ("text or mapping", "")
        meaning = said.get(name) or ("see above" if f"``{name}``" in about else "")
        keys.append(Key(full, words, unit, _default(default), meaning, _example(name, value)))
        section = inner.get(name) or section_in(hint)
        if section is not None and section is not KernelConstants and get_origin(hint) is None:
            below.append((section, full, value))
    yield path, kind, keys
    for section, full, value in below:
        yield from _sections(section, full, value, {})


def _about(kind: type[Any]) -> str:
    return kind.__doc__ or ""


def _default(value: Any) -> str:
    if value is HAS_NO_DEFAULT:
        return REQUIRED
    if hasattr(value, "__dataclass_fields__") or hasattr(value, "_fields"):
        return "each its own"
    if value in ({}, (), ""):
        return "empty"
    return "left out" if value is None else f"`{written(value)}`"


def _example(name: str, value: Any) -> str:
    text = "" if value is None else written(value)
    return f"`{name}: {text}`" if text and len(text) <= LONGEST else ""
