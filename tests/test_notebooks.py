"""Every notebook is stored without outputs and runs from top to bottom in a fresh kernel."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

REPO = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((REPO / "notebooks").glob("*.ipynb"))
PNG = b"\x89PNG\r\n\x1a\n"

notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def _code_cells(book: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in book.cells if cell.cell_type == "code"]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@notebook
def test_notebook_is_stored_without_outputs(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    assert [(cell.outputs, cell.execution_count) for cell in _code_cells(book)] == [([], None)] * len(
        _code_cells(book)
    )
    assert {len(cell.metadata) for cell in book.cells} == {0}


@notebook
def test_cells_are_a_few_lines(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    assert [cell.source for cell in _code_cells(book) if len(cell.source.splitlines()) > 15] == []


@notebook
@pytest.mark.usefixtures("smollm2_path")
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs away from the repository, so that it finds no results of earlier runs."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    monkeypatch.delenv("MPLBACKEND")  # pictures are drawn into the notebook
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")]))
    book = nbformat.read(path, as_version=4)
    NotebookClient(
        book, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    outputs = [output for cell in _code_cells(book) for output in cell.outputs]
    pictures = [base64.b64decode(o.data["image/png"]) for o in outputs if "image/png" in o.get("data", {})]
    tables = [o for o in outputs if "text/html" in o.get("data", {}) and "<table" in o.data["text/html"]]
    assert len(pictures) >= 2
    assert all(picture.startswith(PNG) for picture in pictures)
    assert tables
    assert list(tmp_path.glob("*/summary.json")), "the run it shows was made by itself"
