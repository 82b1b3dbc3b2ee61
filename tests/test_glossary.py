"""Words of the project: what the glossary names exists, and one name is one class."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "trainsim"
ROW = re.compile(r"\| ([^|]+) \| ([^|]+) \| ([^|]+) \|")


def defined() -> dict[str, list[str]]:
    """Public names of classes and functions, and of constants of modules -> the modules that define them."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found[node.name].append(str(path.relative_to(PACKAGE)))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[node.target.id].append(str(path.relative_to(PACKAGE)))
    return found


def classes() -> dict[str, list[str]]:
    """Class, private ones too and without their underscore -> the modules that define one of that name."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                modules[node.name.lstrip("_")].append(str(path.relative_to(PACKAGE)))
    return modules


def rows() -> list[tuple[str, str, str]]:
    """Term, meaning and code of every entry."""
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    found = [match.groups() for line in lines if (match := ROW.fullmatch(line))]
    return [(term, meaning, code) for term, meaning, code in found if term != "term" and not term.startswith("---")]


@pytest.mark.parametrize("entry", rows(), ids=lambda entry: entry[0])
def test_what_the_glossary_names_exists(entry: tuple[str, str, str]) -> None:
    names = re.findall(r"`(\w+)`", entry[2])
    assert names
    for name in names:
        assert name in defined(), f"{entry[0]}: nothing in trainsim is called {name}"


def test_every_term_stands_there_once() -> None:
    terms = [term for entry in rows() for term in entry[0].split(", ")]
    assert len(terms) > 50
    assert len(set(terms)) == len(terms)


def test_one_name_is_one_class() -> None:
    twice = {name: modules for name, modules in classes().items() if len(modules) > 1}
    assert not twice


def test_paths_in_the_guides_exist() -> None:
    """Files, modules and tests that CONTRIBUTING.md names, and links of all pages."""
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:trainsim|tests|docs|topologies)/[\w./]*)`", guide)
    assert len(paths) > 20
    for path in paths:
        assert (ROOT / path).exists(), path
    for name in re.findall(r"`(test_\w+\.py)`", guide):
        assert (ROOT / "tests" / name).exists(), name
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
