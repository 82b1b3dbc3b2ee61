"""The shape of the package, kept by a test: imports point down, nothing is long, values are frozen."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "trainsim"
MODULES = sorted(PACKAGE.rglob("*.py"))

ORDER = [  # strict: a package imports from those before it and from itself, so that there can be no cycle
    "errors",
    "units",
    "plugins",
    "registry",
    "garbage",
    "documents",
    "figures",
    "tables",
    "estimators",
    "frameworks",
    "models",
    "optimizers",
    "hardware",
    "parallel",
    "schedules",
    "contracts",
    "collectives",
    "costs",
    "sharding",
    "program",
    "fold",
    "engine",
    "simulate",
    "analysis",
    "replaying",
    "report",
    "result",
    "diagnosis",
    "scenario",
    "jobs",
    "study",
    "measured",
    "validation",
    "calibration",
    "importers",
    "exporters",
    "memory",
    "notebook",
    "cli",
    "__init__",
    "__main__",
]
LEVEL = {part: level for level, part in enumerate(ORDER)}

LAZY = {
    "matplotlib",
    "pandas",
    "networkx",
    "rich",
    "typer",
    "joblib",
    "jinja2",
    "pyarrow",
}  # inside the functions that use them
FOR_SURE = {  # modules that are nothing but a use of the library, themselves imported only where they are used
    "cli/__init__.py": {"typer"},
    "cli/calibrate.py": {"typer"},
    "cli/commands.py": {"typer"},
    "cli/plan.py": {"typer"},
    "cli/compare.py": {"typer"},
    "cli/diagnose.py": {"typer"},
    "cli/design_options.py": {"typer"},
    "cli/explain.py": {"typer"},
    "cli/export.py": {"typer"},
    "cli/measured.py": {"typer"},
    "cli/memory.py": {"typer"},
    "cli/fits.py": {"typer"},
    "cli/importing.py": {"typer"},
    "cli/listing.py": {"typer"},
    "cli/options.py": {"typer"},
    "cli/run.py": {"typer"},
    "cli/show.py": {"typer"},
    "cli/step.py": {"typer"},
    "cli/sweep.py": {"typer"},
    "cli/validate.py": {"typer"},
    "hardware/graphs.py": {"networkx"},
}

RECORDS = {  # dataclasses that are filled while the engine runs: they are its notebook, not values
    "contracts/record.py": {"Record"},
    "engine/joint.py": {"Member"},
}
LONGEST_MODULE, LONGEST_FUNCTION, MOST_PARAMETERS, MOST_POSITIONAL = 320, 40, 8, 3
ALLOWED_LONG = {
    "deepspeed.py:deepspeed_zero_estimate": "takes what the estimator that it reproduces takes",
}  # "module.py:function" -> the reason


def part(path: Path) -> str:
    """The top-level part of a module."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def target(name: str) -> str:
    """The part that ``trainsim.part.module`` belongs to."""
    words = name.split(".")
    return words[1] if len(words) > 1 else "__init__"


def typing_only(tree: ast.AST) -> set[ast.AST]:
    """Nodes under ``if TYPE_CHECKING``: types may point anywhere, for they do not run."""
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return {inner for block in blocks for inner in ast.walk(block)}


def imports(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    skipped = typing_only(tree)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)


@pytest.fixture(params=MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def module(request: pytest.FixtureRequest) -> tuple[Path, str, ast.Module]:
    source = request.param.read_text()
    return request.param, source, ast.parse(source)


def test_imports_point_down(module: tuple[Path, str, ast.Module]) -> None:
    path, _, tree = module
    for _, name in imports(tree):
        if name.split(".")[0] != "trainsim":
            continue
        here, there = part(path), target(name)
        assert LEVEL[there] <= LEVEL[here], f"{here} must not import {name}"


def test_no_module_imports_itself_in_a_circle() -> None:
    """Modules of a package too, and imports inside functions too: what is read in one order can be moved."""
    known = {module_name(path) for path in MODULES}
    graph = nx.DiGraph()
    for path in MODULES:
        for _, name in imports(ast.parse(path.read_text())):
            if (there := owner(name, known)) and there != module_name(path):
                graph.add_edge(module_name(path), there)
    circles = [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1]
    assert circles == []


def module_name(path: Path) -> str:
    """``trainsim.part.module`` of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def owner(name: str, known: set[str]) -> str | None:
    """The module that an imported name comes from."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def test_only_the_engine_knows_the_clock(module: tuple[Path, str, ast.Module]) -> None:
    path, _, tree = module
    assert part(path) == "engine" or not any(name.split(".")[0] == "simpy" for _, name in imports(tree))


def test_analysis_and_report_know_no_engine(module: tuple[Path, str, ast.Module]) -> None:
    path, _, tree = module
    if part(path) in ("analysis", "report", "hardware", "collectives", "costs", "program", "scenario"):
        assert not any(target(name) == "engine" for _, name in imports(tree) if name.startswith("trainsim."))


def test_heavy_libraries_are_imported_where_they_are_used(module: tuple[Path, str, ast.Module]) -> None:
    path, _, tree = module
    skipped = typing_only(tree)
    for node in tree.body:
        for inner, name in imports(node):
            library = name.split(".")[0]
            if inner not in skipped and library in LAZY - FOR_SURE.get(str(path.relative_to(PACKAGE)), set()):
                assert isinstance(node, ast.FunctionDef | ast.ClassDef), f"{library} at the top of {path.name}"


def test_nothing_is_long(module: tuple[Path, str, ast.Module]) -> None:
    path, source, tree = module
    assert source.count("\n") <= LONGEST_MODULE
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and f"{path.name}:{node.name}" not in ALLOWED_LONG:
            assert (node.end_lineno or 0) - node.lineno - documentation(node) < LONGEST_FUNCTION, node.name
            assert len(parameters(node)) <= MOST_PARAMETERS, node.name


def documentation(node: ast.FunctionDef) -> int:
    """Lines of the docstring, which are not counted."""
    first = node.body[0]
    text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return (first.end_lineno or 0) - first.lineno + 1 if text else 0


def parameters(node: ast.FunctionDef) -> list[str]:
    """Names of the parameters; a command's are the options of the command line, as many as it has."""
    if any("command" in ast.unparse(d) for d in node.decorator_list):
        return []
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def test_public_dataclasses_are_frozen(module: tuple[Path, str, ast.Module]) -> None:
    path, _, tree = module
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        if node.name in RECORDS.get(str(path.relative_to(PACKAGE)), set()):
            continue
        for decorator in map(ast.unparse, node.decorator_list):
            assert not decorator.startswith("dataclass") or "frozen=True" in decorator, node.name


def test_every_module_says_what_it_is(module: tuple[Path, str, ast.Module]) -> None:
    path, _, tree = module
    assert ast.get_docstring(tree), path
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node) is not None, f"{path.name}: {node.name} has no docstring"


def test_every_part_has_a_level() -> None:
    assert {part(path) for path in MODULES} <= set(LEVEL)


FORBIDDEN = ("sha" + "red/", "/wo" + "rk/", "/ro" + "ot/", "/t" + "mp/", "pypi" + ".org", "files.python" + "hosted")

SEARCHERS = {"tests/test_notebooks.py"}  # which look for such words themselves


def test_no_file_names_the_place_where_it_was_written() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        file = ROOT / name
        if file.suffix in (".png", ".gz") or name in SEARCHERS or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        for word in FORBIDDEN:
            assert word not in text, f"{name} mentions {word}"
