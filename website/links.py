"""Links of a page that leave the site's folder: to other files of the repository, which become part of the site."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

ROOT = Path(__file__).parents[1]
DOCS = "docs"
PAGES = {
    "README.md": "index.md",
    "README.zh-CN.md": "index.zh-CN.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Pages of the repository that are pages of the site, by the name that they have there."""
LINK = re.compile(r"(?P<open>!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?P<target>[^)\s]+)(?P<close>\))")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def relinked(text: str, *, written: str, shown: str, add: Callable[[str], str]) -> str:
    """*text* of the file *written* (a path of the repository), as it stands at *shown* (a path of the site).

    *add* makes a file of the repository a part of the site and returns its place there, or nothing for a folder, of
    which only the words stay.

    >>> relinked("[a](docs/b.md#c) [d](e/)", written="README.md", shown="index.md", add=lambda path: "")
    '[a](b.md#c) d'
    """

    def one(found: re.Match[str]) -> str:
        if "](" in found["open"][:-2]:  # a picture that is a link
            return found[0]
        target, _, anchor = found["target"].partition("#")
        if not target or ":" in target:
            return found[0]
        place = _place(normpath(PurePosixPath(written).parent / target), add)
        if not place:
            return found["open"][1:-2]
        there = relpath(place, PurePosixPath(shown).parent)
        return f"{found['open']}{there}{'#' if anchor else ''}{anchor}{found['close']}"

    parts = CODE.split(text)
    return "".join(part if number % 2 else LINK.sub(one, part) for number, part in enumerate(parts))


def _place(path: str, add: Callable[[str], str]) -> str:
    """Where a file of the repository is in the site."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith(f"{DOCS}/"):
        return path.removeprefix(f"{DOCS}/")
    if path.startswith("notebooks/"):
        return path.removesuffix(".ipynb") + ".md" if path.endswith(".ipynb") else path
    return add(path)
