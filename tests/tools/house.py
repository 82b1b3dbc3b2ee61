"""
The shape of the package in numbers: modules, lines, names that mean two things, circles of imports, tests.

    python -m tests.tools.house [ROOT]      # the root of a checkout, this one by default
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import networkx as nx

VAGUE = ("one", "mine", "found")
"""Variables whose name does not say what they hold."""


def modules(root: Path) -> list[Path]:
    """The package's Python files."""
    return sorted((root / "trainsim").rglob("*.py"))


def lines(files: list[Path]) -> int:
    """Lines of all *files*."""
    return sum(path.read_text().count("\n") for path in files)


def classes_defined_twice(files: list[Path]) -> dict[str, list[str]]:
    """Class names, underscores aside, that stand in more than one file."""
    where: dict[str, list[str]] = defaultdict(list)
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                where[node.name.lstrip("_")].append(str(path))
    return {name: places for name, places in sorted(where.items()) if len(places) > 1}


def files_named_twice(files: list[Path]) -> dict[str, int]:
    """File names, ``__init__`` aside, that occur more than once."""
    names = Counter(path.name for path in files if not path.name.startswith("__"))
    return {name: count for name, count in sorted(names.items()) if count > 1}


def imported(path: Path) -> Iterator[str]:
    """Dotted names that a module imports, those for types alone left out."""
    tree = ast.parse(path.read_text())
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            skipped |= set(ast.walk(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node not in skipped:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import) and node not in skipped:
            yield from (alias.name for alias in node.names)


def package_circles(root: Path) -> list[list[str]]:
    """Parts of the package that need each other."""
    graph = nx.DiGraph()
    for path in modules(root):
        part = path.relative_to(root / "trainsim").parts[0].removesuffix(".py")
        for name in imported(path):
            words = name.split(".")
            if words[0] == "trainsim" and len(words) > 1 and words[1] != part:
                graph.add_edge(part, words[1])
    return [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1]


def functions(files: list[Path]) -> list[int]:
    """Lengths of all functions, lines."""
    return sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    )


def vague(files: list[Path]) -> dict[str, int]:
    """How often variables have a name that does not say what they hold."""
    uses = Counter(
        node.id for path in files for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)
    )
    return {name: uses[name] for name in VAGUE}


def comments(files: list[Path]) -> int:
    """Lines that are comments."""
    return sum(line.lstrip().startswith("#") for path in files for line in path.read_text().splitlines())


def main() -> None:
    """Print the table."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2]
    files, tests = modules(root), sorted((root / "tests").rglob("*.py"))
    length, size = functions(files), lines(files)
    rows = {
        "modules": len(files),
        "lines": size,
        "lines of tests": lines(tests),
        "tests to code": f"{lines(tests) / size:.2f}",
        "functions: median, p95, longest": (length[len(length) // 2], length[int(0.95 * len(length))], length[-1]),
        "lines with a comment alone": comments(files),
        "class names defined twice": len(classes_defined_twice(files)),
        "file names used twice": len(files_named_twice(files)),
        "vague names": vague(files),
        "circles of packages": package_circles(root),
    }
    for name, value in rows.items():
        print(f"{name:34} {value}")
    for name, places in classes_defined_twice(files).items():
        print(f"  {name}: {' '.join(str(Path(p).relative_to(root)) for p in places)}")
    print("  " + ", ".join(f"{name} x{count}" for name, count in files_named_twice(files).items()))


if __name__ == "__main__":
    main()
