"""Every notebook is stored without outputs and runs from top to bottom in a fresh kernel.

Each takes the files of a run of the reader's, or makes a small one of the default model. The first way is
tried on recordings of a tiny model; the second is slow where it is not the notebook's only one.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from dspark.cli.main import main

REPO = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((REPO / "notebooks").glob("*.ipynb"))
PNG = b"\x89PNG\r\n\x1a\n"
TINY = ("target=synthetic", "drafter=ngram", "workload.num_requests=3", "sampling.max_new_tokens=24")
LONGEST = 15
"""Lines of a cell, imports not counted."""

notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def _code_cells(book: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in book.cells if cell.cell_type == "code"]


def test_the_notebooks_tell_five_stories() -> None:
    names = ("quickstart", "write_a_depth_policy", "acceptance", "roofline_and_knee", "replay_and_tune")
    assert [path.stem for path in NOTEBOOKS] == [f"{i:02}_{name}" for i, name in enumerate(names)]


@notebook
def test_notebook_is_stored_without_outputs(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    assert [(cell.outputs, cell.execution_count) for cell in _code_cells(book)] == [([], None)] * len(
        _code_cells(book)
    )
    assert {len(cell.metadata) for cell in book.cells} == {0}


@notebook
def test_cells_are_a_few_lines_between_words(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    for cell in _code_cells(book):
        lines = [line for line in cell.source.splitlines() if not line.startswith(("from ", "import "))]
        assert len(lines) <= LONGEST, cell.source
    assert book.cells[0].cell_type == book.cells[-1].cell_type == "markdown"
    assert sum(cell.cell_type == "markdown" for cell in book.cells) >= 6


def _comparison(folder: Path) -> Path:
    cells = ("compare.policies=[fixed 0,fixed 3]", "compare.batch_sizes=[1,3]")
    assert main(["compare", *TINY, *cells, "tracker.mode=offline", f"hydra.run.dir={folder}"]) == 0
    return folder


def _trace(folder: Path) -> Path:
    assert main(["record", *TINY, "record.depth=4", f"hydra.run.dir={folder}"]) == 0
    return folder / "trace.parquet"


def _profile(folder: Path) -> Path:
    passes = ("profile.tokens=[1,2,4,8]", "profile.rows=[1,2]", "profile.contexts=[16]")
    drafts = ("profile.depths=[1]", "profile.draft_rows=[1]", "profile.repeats=2", "profile.path=null")
    words = (*TINY, *passes, *drafts, "tracker=none")
    assert main(["profile", *words, f"hydra.run.dir={folder}"]) == 0
    return folder / "profile.json"


GIVEN: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "00_quickstart": ("RUN", _comparison),
    "02_acceptance": ("TRACE", _trace),
    "03_roofline_and_knee": ("PROFILE", _profile),
    "04_replay_and_tune": ("TRACE", _trace),
}
"""What a notebook takes from its reader, and a small one of it."""

ON_ITS_OWN = [
    pytest.param(path, id=path.name, marks=[pytest.mark.slow] if path.stem in [*GIVEN][1:] else [])
    for path in NOTEBOOKS
]


@pytest.mark.parametrize("path", ON_ITS_OWN)
@pytest.mark.usefixtures("smollm2_path")
def test_notebook_runs_on_a_run_that_it_makes(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(path, tmp_path, monkeypatch)
    assert list(tmp_path.rglob("summary.json")), "the run it shows was made by itself"


@pytest.mark.parametrize("name", [pytest.param("00_quickstart", marks=pytest.mark.slow), *[*GIVEN][1:]])
def test_notebook_runs_on_what_it_is_given(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if name == "00_quickstart":
        request.getfixturevalue("smollm2_path")  # its engine's target in any case
    variable, make = GIVEN[name]
    given = make(tmp_path / "given")
    found = _run(REPO / "notebooks" / f"{name}.ipynb", tmp_path, monkeypatch, {variable: given})
    assert str(given) in "".join(cell.source for cell in found)


def _run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Path] | None = None
) -> list[nbformat.NotebookNode]:
    """The executed code cells; away from the repository, so that no results of earlier runs are found."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    monkeypatch.delenv("MPLBACKEND")  # pictures are drawn into the notebook
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")]))
    book = nbformat.read(path, as_version=4)
    for variable, value in (given or {}).items():
        for cell in _code_cells(book):
            cell.source = cell.source.replace(f"{variable} = None", f"{variable} = Path({str(value)!r})")
    NotebookClient(
        book, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    outputs = [output for cell in _code_cells(book) for output in cell.outputs]
    pictures = [base64.b64decode(o.data["image/png"]) for o in outputs if "image/png" in o.get("data", {})]
    tables = [o for o in outputs if "text/html" in o.get("data", {}) and "<table" in o.data["text/html"]]
    said = "".join(o.text for o in outputs if o.output_type == "stream")
    assert len(pictures) >= 2
    assert all(picture.startswith(PNG) for picture in pictures)
    assert tables
    assert "dspark: error" not in said
    return _code_cells(book)
