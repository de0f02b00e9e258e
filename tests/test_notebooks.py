"""The notebooks: each runs from a clean kernel, and is committed as such a run leaves it."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
LOCAL_PATH = re.compile(
    r"(?<![\w.])/(home|root|Users|tmp|private|var|opt|usr|mnt|work)/|\b[A-Z]:\\|file:/|site-packages"
)

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_notebooks():
    assert "1_what_lrn_does" in [path.stem for path in NOTEBOOKS]


@each_notebook
def test_notebook_runs_from_a_clean_kernel(path, monkeypatch, tmp_path):
    # Neither the start-up files of the user nor another way to draw.
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("MPLBACKEND", raising=False)
    folder = tmp_path / "notebooks"
    folder.mkdir()
    # What a notebook may read of the repository.
    (tmp_path / "tests").symlink_to(Path(__file__).parent)
    notebook = nbformat.read(path, as_version=4)
    committed = [pictures(cell) for cell in notebook.cells]
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
    assert [pictures(cell) for cell in notebook.cells] == committed


@each_notebook
def test_notebook_is_committed_with_the_outputs_of_one_run(path):
    notebook = nbformat.read(path, as_version=4)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert any(pictures(cell) for cell in notebook.cells)
    for output in outputs(notebook):
        assert output.output_type != "error"
        assert output.get("name") != "stderr", output.text


@each_notebook
def test_notebook_names_no_path_of_a_machine(path):
    notebook = nbformat.read(path, as_version=4)
    texts = [cell.source for cell in notebook.cells]
    for output in outputs(notebook):
        texts.append(output.get("text", ""))
        texts += [str(data) for kind, data in output.get("data", {}).items() if "image" not in kind]
    for text in texts:
        assert not LOCAL_PATH.search(text), text


@each_notebook
def test_notebook_has_no_empty_cell(path):
    notebook = nbformat.read(path, as_version=4)
    assert all(cell.source.strip() for cell in notebook.cells)


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def pictures(cell):
    """How many pictures the cell shows."""
    return sum("image/png" in output.get("data", {}) for output in cell.get("outputs", []))
