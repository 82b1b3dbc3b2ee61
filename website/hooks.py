"""
Hooks of MkDocs (``mkdocs.yml``): pages that are made from code, data, notebooks and scenarios, and links to files of
the repository.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # MkDocs loads this file by its path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website import gallery
from website.links import PAGES, ROOT, relinked
from website.notebooks import filled, notebook_page, notebooks
from website.pages import generated

_outputs: dict[str, tuple[str, ...]] = {}
"""What notebooks show, by the page of the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages of ``docs/`` and those that are made."""
    for name, content in _made():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to files of the repository lead to copies of them in the site."""
    shown = page.file.src_uri

    def add(path: str) -> str:
        place = f"files/{path}"
        whole = ROOT / path
        if not whole.is_file():
            return "" if whole.is_dir() else place  # MkDocs says that there is no such file
        if files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, content=whole.read_bytes()))
        return place

    return relinked(markdown, written=_written(shown), shown=shown, add=add)


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Outputs of notebooks are put in when Markdown is through."""
    return filled(html, _outputs.get(page.file.src_uri, ()))


def _made() -> Iterator[tuple[str, str | bytes]]:
    for written, shown in PAGES.items():
        yield shown, (ROOT / written).read_text(encoding="utf-8")
    for path in notebooks():
        made = notebook_page(path)
        _outputs[f"notebooks/{path.stem}.md"] = made.outputs
        yield f"notebooks/{path.stem}.md", made.text
        yield f"notebooks/{path.name}", path.read_bytes()
        yield from ((f"notebooks/{name}", picture) for name, picture in made.pictures.items())
    yield from generated()
    yield from gallery.pages()


def _written(shown: str) -> str:
    """The file of the repository that a page of the site comes from."""
    own = next((written for written, page in PAGES.items() if page == shown), None)
    return own or (shown if shown.startswith("notebooks/") else f"docs/{shown}")
