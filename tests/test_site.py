"""The documentation: every page is in the navigation, every link and anchor leads somewhere, notebooks are pages."""

from __future__ import annotations

import doctest
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from website import gallery
from website.links import CODE, LINK, PAGES, ROOT, relinked
from website.notebooks import filled, notebook_page, notebooks
from website.pages import generated

DOCS = ROOT / "docs"
TEXTS = [*(ROOT / page for page in PAGES), *sorted(DOCS.rglob("*.md"))]
HEADING = re.compile(r"^#{1,6} +(.*?)(?: *\{#[\w-]+\})?$", re.MULTILINE)


def navigation(entries: list[Any]) -> Iterator[str]:
    """The pages of a navigation, at whatever depth."""
    for entry in entries:
        inner = entry if isinstance(entry, str) else next(iter(entry.values()))
        if isinstance(inner, str):
            yield inner
        else:
            yield from navigation(inner)


def configuration() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return found


@cache
def anchors(path: Path) -> frozenset[str]:
    """What a link to a part of the page at *path* may name."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"\{#([\w-]+)\}|<a id=\"([\w-]+)\"", text)
    return frozenset([slug(title) for title in HEADING.findall(text)] + [one or two for one, two in named])


def slug(title: str) -> str:
    """The anchor of a heading, as Markdown makes it.

    >>> slug("Days, and `cost`!")
    'days-and-cost'
    """
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def links(text: str) -> Iterator[str]:
    """Targets inside the repository."""
    for part in CODE.split(text)[::2]:
        for found in LINK.finditer(part):
            if ":" not in found["target"].partition("#")[0]:
                yield found["target"]


@pytest.mark.parametrize("name", ["links", "gallery", "key", "words", "descriptions"])
def test_examples_of_docstrings(name: str) -> None:
    assert doctest.testmod(import_module(f"website.{name}")).attempted > 0
    assert not doctest.testmod(import_module(f"website.{name}")).failed


def test_every_page_is_in_the_navigation_once() -> None:
    made = {name for name, _ in generated() if name.endswith(".md")}
    there = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} | set(PAGES.values()) | made
    there |= {f"notebooks/{path.stem}.md" for path in notebooks()} | {gallery.PAGE}
    listed = list(navigation(configuration()["nav"]))
    assert sorted(set(listed)) == sorted(listed), "a page stands there twice"
    assert set(listed) - there == set(), "pages of `nav` in mkdocs.yml that are not there"
    assert there - set(listed) == set(), "pages that `nav` in mkdocs.yml does not have: add a line for each"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_anchors_lead_somewhere(path: Path) -> None:
    wrong = []
    for target in links(path.read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            wrong.append(target)
    assert not wrong, f"{path.relative_to(ROOT)} has links that lead nowhere: {', '.join(wrong)}"


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](#two) [b](other.md) [c](#one) `[d](e.md)`\n")
    assert list(links(page.read_text())) == ["#two", "other.md", "#one"]
    assert anchors(page) == {"one"}


def test_links_of_a_page_that_moved_still_lead_to_the_same_place() -> None:
    asked: list[str] = []

    def add(path: str) -> str:
        asked.append(path)
        return f"files/{path}"

    text = (
        "[x](../scenarios/hsdp.yaml) [y](sharding.md#fsdp) [z](https://a.b) `[w](q)` [n](../notebooks/02_sweep.ipynb)"
    )
    moved = relinked(text, written="docs/zeropp.md", shown="zeropp.md", add=add)
    assert moved == (
        "[x](files/scenarios/hsdp.yaml) [y](sharding.md#fsdp) [z](https://a.b) `[w](q)` [n](notebooks/02_sweep.md)"
    )
    assert relinked("[v](../README.md)", written="docs/a.md", shown="a.md", add=add) == "[v](index.md)"
    assert asked == ["scenarios/hsdp.yaml"]


def test_the_gallery_has_every_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is run for it is tried with one; the others are run by the build."""
    monkeypatch.setattr(gallery, "KEPT", tmp_path)
    figures, picture = gallery.shown_scenario(ROOT / "scenarios" / "ds_zero1.yaml")
    assert gallery.shown_scenario(ROOT / "scenarios" / "ds_zero1.yaml") == (figures, picture), "what was kept"
    assert picture.startswith(b"\x89PNG")
    assert {"step", "MFU", "bubble", "memory"} <= set(figures)
    page = gallery.page(dict.fromkeys((path.stem for path in gallery.scenario_files()), figures))
    for path in gallery.scenario_files():
        words = " ".join(gallery.comment(path.read_text(encoding="utf-8")))
        assert len(words) > 40, f"{path.name} does not say at its beginning what it is"
        assert f"\n## {path.stem}\n" in page
        assert words in page


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_notebook_is_a_page_with_all_that_it_shows(path: Path) -> None:
    page = notebook_page(path)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    shown = [o for cell in cells for o in cell.get("outputs", ())]
    assert len(page.outputs) == sum("text/html" in o.get("data", {}) for o in shown)
    assert all(name in page.text for name in page.pictures)
    html = filled("".join(f'<div id="output-{n}"></div>' for n in range(len(page.outputs))), page.outputs)
    assert "output-0" not in html
    assert all(output in html for output in page.outputs)
