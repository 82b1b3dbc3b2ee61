"""
Run the notebooks and store what they show.

    python notebooks/execute.py [NOTEBOOK]...

Pictures are stored with 256 colours, which looks the same and is a quarter of the size. Needs what
``pip install '.[test]'`` installs.
"""

from __future__ import annotations

import base64
import io
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

FOLDER = Path(__file__).parent
COLOURS = 256
EMBEDDED = re.compile(r"(?<=data:image/png;base64,)[A-Za-z0-9+/=]+")


def smaller(picture: str) -> str:
    """A PNG in base64, with few colours."""
    image = Image.open(io.BytesIO(base64.b64decode(picture)))
    out = io.BytesIO()
    image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(out, "png", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


def shrink(notebook: NotebookNode) -> None:
    """Store pictures small, on their own or inside HTML, and leave out when each cell ran."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                data["image/png"] = smaller(data["image/png"])
            if "text/html" in data:
                data["text/html"] = EMBEDDED.sub(lambda found: smaller(found[0]), data["text/html"])


def execute(path: Path) -> None:
    """Run the notebook at *path* with this interpreter and store its outputs in it. Raises what a cell raises."""
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": path.parent}}
    # What a cell prints comes in as many pieces as time has it: they are stored as one.
    NotebookClient(notebook, timeout=600, kernel_name="python3", coalesce_streams=True, resources=where).execute()
    shrink(notebook)
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, path)
    print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(FOLDER.glob("*.ipynb")):
        execute(Path(name))
