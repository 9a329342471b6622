"""The notebooks of docs run from the first cell to the last, and are stored with their outputs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
LARGEST = 30_000
"""Bytes: outputs are to be read, not stored."""
EXECUTE = """
import sys
import nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=sys.argv[2])
nbformat.write(notebook, sys.argv[2] + "/executed.ipynb")
"""


def cells_of(path):
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    """In a process of its own, as its kernel is: Jupyter's own warnings are not ours."""
    command = [sys.executable, "-W", "ignore", "-c", EXECUTE, str(path), str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stderr[-3000:]
    outputs = [output for cell in cells_of(tmp_path / "executed.ipynb") for output in cell["outputs"]]
    assert not [each for each in outputs if each["output_type"] == "error"]
    assert not [each for each in outputs if "Warning" in str(each.get("text", ""))]


def test_there_are_two_notebooks():
    assert len(NOTEBOOKS) == 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_has_the_outputs_of_its_last_run(path):
    cells = cells_of(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert cells[-1]["outputs"]
    assert path.stat().st_size < LARGEST
    assert str(Path.home()) not in path.read_text(encoding="utf-8")
