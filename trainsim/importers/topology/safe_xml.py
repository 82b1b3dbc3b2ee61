"""
XML as a tree of elements with their lines: without a document type, entities of its own or other files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from trainsim.errors import ScenarioError, shorten

MOST_ELEMENTS = 100_000
DEEPEST = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """An element of XML with its attributes, children, text and line."""

    tag: str
    attributes: Mapping[str, str]
    children: tuple[Element, ...] = ()
    text: str = ""
    line: int = 0

    def get(self, name: str, default: str = "") -> str:
        """The attribute called *name*, without spaces around it."""
        return self.attributes.get(name, default).strip()

    def all(self, tag: str) -> tuple[Element, ...]:
        """The children called *tag*."""
        return tuple(child for child in self.children if child.tag == tag)

    def walk(self) -> Iterator[Element]:
        """The element and all below, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(slots=True)
class _OpenElement:
    """An element whose end was not seen yet."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def closed(self) -> Element:
        return Element(
            tag=self.tag,
            attributes=self.attributes,
            children=tuple(self.children),
            text="".join(self.text).strip(),
            line=self.line,
        )


def read_xml(text: str, *, file: str) -> Element:
    """The root of *text*, called *file* in messages. Raises ScenarioError with the line.

    A document type is refused, since it may define entities that grow without end or name other files.

    >>> root = read_xml("<!-- by hand --><a x='1'><b/></a>", file="x.xml")
    >>> root.tag, root.get("x"), [child.tag for child in root.children]
    ('a', '1', ['b'])
    """
    tree = _Tree(file)
    try:
        tree.parser.Parse(text.lstrip("\ufeff").lstrip().encode("utf-8", "surrogatepass"), True)
    except expat.ExpatError as fault:
        reason = expat.errors.messages.get(fault.code, str(fault))
        raise ScenarioError(f"{file}:{fault.lineno}: not valid XML: {reason}") from None
    assert tree.root is not None
    return tree.root


class _Tree:
    """What a parser has seen so far."""

    def __init__(self, file: str):
        self.file = file
        self.stack: list[_OpenElement] = []
        self.count = 0
        self.parser: Any = expat.ParserCreate(encoding="utf-8")
        self.root: Element | None = None
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters

    def _refuse(self, name: str, *_: object) -> None:
        raise ScenarioError(
            f"{self.file}:{self.parser.CurrentLineNumber}: a document type (<!DOCTYPE {shorten(name)}>) is not read, "
            "since it may refer to other files and expand without bound; remove the line"
        )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        line = int(self.parser.CurrentLineNumber)
        self.count += 1
        if self.count > MOST_ELEMENTS or len(self.stack) >= DEEPEST:
            most = f"at most {MOST_ELEMENTS} of them, {DEEPEST} inside each other, are read"
            raise ScenarioError(f"{self.file}:{line}: too many or too deeply nested elements; {most}")
        self.stack.append(_OpenElement(tag=tag, attributes=attributes, line=line))

    def _end(self, _: str) -> None:
        element = self.stack.pop().closed()
        if self.stack:
            self.stack[-1].children.append(element)
        else:
            self.root = element

    def _characters(self, text: str) -> None:
        if self.stack:
            self.stack[-1].text.append(text)


def root_tag(text: str) -> str:
    """The name of the outermost element of what may be XML, found without reading it; empty if it is none.

    >>> root_tag("<?xml version='1.0'?><!-- a -->\\n<system version='1'>"), root_tag("{}")
    ('system', '')
    """
    start = text[:65536].lstrip("\ufeff")
    bare = re.sub(r"<!--.*?-->|<\?.*?\?>|<!DOCTYPE[^>\[]*(\[.*?\])?\s*>", "", start, flags=re.DOTALL).lstrip()
    found = re.match(r"<([A-Za-z][\w.:-]*)", bare)
    return found[1] if found else ""
