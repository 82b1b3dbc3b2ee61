"""
Break the package in small ways, one at a time, and see whether the fast tests notice.

    python -m tests.tools.mutate --count 40 --seed 1           # random places, spread evenly over the parts
    python -m tests.tools.mutate --count 8 --part engine       # one part only
    python -m tests.tools.mutate --list --count 40 --seed 1    # only say what would be broken

A mutation changes one operator, comparison, constant, bound, condition or keyword of one function. It is killed when a
test fails, or when the tests take much longer than usual. The work is done in a copy of the working tree.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PARTS = {
    "engine": ["engine"],
    "fold": ["fold"],
    "collectives": ["collectives"],
    "sharding": ["sharding"],
    "costs": ["costs"],
    "analysis": ["analysis"],
    "memory": ["program/states.py", "program/offload.py", "analysis/memory.py", "estimators", "frameworks"],
    "schedules": ["schedules"],
}
FIRST = {  # the tests that most likely notice: they run before all others, to save time
    "engine": ["test_engine", "test_fold"],
    "fold": ["test_fold", "test_engine"],
    "collectives": ["test_collectives", "test_hardware", "test_anchors"],
    "sharding": ["test_sharding", "test_coordinator", "test_states"],
    "costs": ["test_costs", "test_anchors"],
    "analysis": ["test_analysis", "test_result", "test_report", "test_laws"],
    "memory": ["test_states", "test_memory", "test_published_memory", "test_offload"],
    "schedules": ["test_schedules", "test_replay"],
}
ALSO = ["test_laws", "test_conservation", "test_slices", "test_program", "test_steps", "test_trace"]
"""Tests of whole steps, which notice much: they come next."""
LIMIT = 300.0
"""Seconds of one run of tests after which a mutant that makes them hang counts as killed."""

SWAPPED: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Mutant(NamedTuple):
    """One way to break one file: what stands there, and what the whole file becomes."""

    part: str
    path: Path
    line: int
    before: str
    after: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


def mutants(part: str, path: Path) -> Iterator[Mutant]:
    """All mutants of one file."""
    source = (ROOT / "trainsim" / path).read_text()
    count = sum(1 for _ in _places(ast.parse(source)))
    for k in range(count):
        tree = ast.parse(source)
        node = list(_places(tree))[k]
        before = ast.unparse(node)
        _change(node)
        after = ast.unparse(node)
        if before != after:
            line = getattr(node, "lineno", 0)
            yield Mutant(part, path, line, before[:90], after[:90], ast.unparse(ast.fix_missing_locations(tree)))


def _places(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes of functions that can be changed; docstrings, annotations, messages and decorators are left alone."""
    left_alone: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for skipped in (*node.decorator_list, node.args, node.returns):
                if skipped is not None:
                    left_alone |= set(ast.walk(skipped))
            if node.name in ("__repr__", "__str__", "explanation", "words"):
                left_alone |= set(ast.walk(node))
        if isinstance(node, ast.AnnAssign):
            left_alone |= set(ast.walk(node.annotation))
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            left_alone |= set(ast.walk(node))
    inside = {n for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    for node in ast.walk(tree):
        if node in inside and node not in left_alone and _can_change(node):
            yield node


def _can_change(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=op) | ast.BoolOp(op=op):
            return type(op) in SWAPPED
        case ast.Compare(ops=[op]):
            return type(op) in SWAPPED
        case ast.Call(func=ast.Name(id=name)):
            return name in CALLS
        case ast.Constant(value=bool() | int() | float()):
            return True
        case ast.UnaryOp(op=ast.Not()):
            return True
    return False


def _change(node: ast.AST) -> None:
    match node:
        case ast.BinOp() | ast.BoolOp():
            node.op = SWAPPED[type(node.op)]()
        case ast.Compare():
            node.ops = [SWAPPED[type(node.ops[0])]()]
        case ast.Call(func=ast.Name() as function):
            function.id = CALLS[function.id]
        case ast.Constant(value=bool() as value):
            node.value = not value
        case ast.Constant(value=int() | float() as value):
            node.value = value + 1 if isinstance(value, int) else value * 1.5 + 0.1
        case ast.UnaryOp(operand=operand):
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), operand)


def chosen(count: int, seed: int, only: str | None) -> list[Mutant]:
    """*count* mutants, spread evenly over the parts; the same for the same tree and seed."""
    rng, out = random.Random(seed), []
    parts = [only] if only else list(PARTS)
    pools = {part: _files(part) for part in parts}
    while len(out) < count:
        part = parts[len(out) % len(parts)]
        path = rng.choice(pools[part])
        some = list(mutants(part, path))
        if some and (mutant := rng.choice(some)) not in out:
            out.append(mutant)
    return out


def _files(part: str) -> list[Path]:
    package = ROOT / "trainsim"
    out: list[Path] = []
    for place in PARTS[part]:
        target = package / place
        files = sorted(target.rglob("*.py")) if target.is_dir() else [target] * target.is_file()
        out += [path.relative_to(package) for path in files]
    return out


def killed(mutant: Mutant, tree: Path) -> str | None:
    """The first test that fails with *mutant* in the copy *tree*, or None when all pass."""
    target = tree / "trainsim" / mutant.path
    original = target.read_text()
    target.write_text(mutant.text)
    try:
        first = [str(p) for stem in (*FIRST[mutant.part], *ALSO) for p in sorted((tree / "tests").glob(f"{stem}*.py"))]
        return _failing(tree, [*dict.fromkeys(first)]) or _failing(tree, [])
    finally:
        target.write_text(original)


def _failing(tree: Path, files: list[str]) -> str | None:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "-p", "no:cacheprovider", *files]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    try:
        run = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return "a hang"
    if run.returncode in (0, 5):
        return None
    lines = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0].split(" - ")[0].removeprefix("FAILED ") if lines else f"pytest ended with {run.returncode}"


def main() -> int:
    """Run the mutants and say who survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first so many, which an earlier run had")
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    some = chosen(given.count, given.seed, given.part)
    if given.list:
        print(*some, sep="\n")
        return 0
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".git", ".venv", "out", ".*_cache", "__pycache__")
        shutil.copytree(ROOT, tree, ignore=ignored)
        for number, mutant in enumerate(some[given.skip :], given.skip + 1):
            began = time.perf_counter()
            by = killed(mutant, tree)
            print(f"{number:3d} {time.perf_counter() - began:4.0f} s {mutant}  [{by or 'SURVIVED'}]", flush=True)
            survivors += [] if by else [mutant]
    ran = len(some) - given.skip
    print(f"{ran - len(survivors)} of {ran} killed")
    print(*(f"survived: {mutant}" for mutant in survivors), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
