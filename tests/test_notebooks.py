"""The notebooks run from top to bottom, and what they showed is stored in them."""

import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
LARGEST = 1.5e6  # bytes of a file that a browser shows at once
ABSOLUTE = re.compile(r"(?<![\w.:/])/\w[\w.-]*/[\w./-]+")  # a path on the machine that ran it
SLOW = {"02_sweep", "03_plan", "04_schedules", "05_zeropp_slow_networks"}


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shows_something(cell: NotebookNode) -> bool:
    """Cells that only import or define have nothing to show."""
    return not all(line.startswith(("import ", "from ", "GIB = ")) for line in cell.source.splitlines() if line)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place where the kernel ``python3`` is this interpreter, whatever else is installed."""
    from ipykernel.kernelspec import write_kernel_spec

    home = tmp_path_factory.mktemp("jupyter")
    write_kernel_spec(str(home / "kernels" / "python3"))
    return home


def run(path: Path, folder: Path) -> NotebookNode:
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": folder}}
    # A kernel sends what is printed in as many pieces as time has it: they are one text.
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where, coalesce_streams=True).execute()
    return notebook


def test_there_are_five() -> None:
    names = ["01_first_run", "02_sweep", "03_plan", "04_schedules", "05_zeropp_slow_networks"]
    assert [path.stem for path in NOTEBOOKS] == names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stored(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "run it from top to bottom"
    assert all(cell.outputs for cell in cells if shows_something(cell))
    assert path.stat().st_size < LARGEST


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_clean(path: Path) -> None:
    """No errors, no warnings, nothing about the machine that they ran on."""
    for cell in code_cells(nbformat.read(path, as_version=4)):
        for output in cell.outputs:
            assert output.output_type != "error"
            assert output.get("name") != "stderr", output.text
            words = str(output.get("text", "")) + str(output.get("data", {}).get("text/plain", ""))
            assert "Warning" not in words
            assert not ABSOLUTE.search(words), words


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem in SLOW)) for path in NOTEBOOKS],
)
def test_runs(path: Path, tmp_path: Path, kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(kernels))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    copy = shutil.copy(path, tmp_path)
    now, stored = run(Path(copy), tmp_path), nbformat.read(path, as_version=4)
    assert not [o for cell in code_cells(now) for o in cell.outputs if o.get("name") == "stderr"]
    for cell, kept in zip(code_cells(now), code_cells(stored), strict=True):
        assert [o.output_type for o in cell.outputs] == [o.output_type for o in kept.outputs], cell.source
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "a notebook leaves nothing behind"
