"""Runs the notebooks of `examples/notebooks` and stores what they show: plots and values, no warnings, no paths.

python tools/notebook_outputs.py      `make notebooks`
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent.parent / "examples" / "notebooks"


def main() -> None:
    """Run each notebook from its first cell to its last in a kernel of its own, and write it back."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(notebook, timeout=300, kernel_name="python3", record_timing=False).execute()
        notebook.metadata.pop("language_info", None)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
