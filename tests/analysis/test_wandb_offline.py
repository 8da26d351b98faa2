"""What W&B's own writer put into an offline run's file comes back."""

from __future__ import annotations

import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from dspark.analysis import wandb_offline
from dspark.analysis.wandb_offline import OfflineRun, read_offline_run
from dspark.metrics.tracker import WandbTracker, step_numbers
from tests.metrics.conftest import make_row, make_step

if TYPE_CHECKING:
    from dspark.types import StepRecord

STEPS = [
    make_step(0, [], wall_s=1.0, prefill=9),
    make_step(1, [make_row("a", drafted=3, accepted=1), make_row("b", drafted=0, accepted=0)], wall_s=0.5),
]
LONG = "x" * 100_000
"""A setting whose record takes several blocks of the file."""


def _mirror(folder: Path, cells: dict[str, list[StepRecord]], rows: dict[str, dict[str, Any]]) -> Path:
    """The file of an offline run that W&B wrote."""
    settings: dict[str, Any] = {"project": "p", "name": None, "tags": [], "mode": "offline"}
    tracker = WandbTracker(
        folder, **settings, may_fall_back=False, config={"engine": {"seed": 7}, "long": LONG}
    )
    for cell, steps in cells.items():
        for step in steps:
            tracker.step(cell, step)
    tracker.summarise(rows, [])
    tracker.close(0)
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    deadline_s = time.monotonic() + 60  # W&B's writer is a process of its own, slow on a machine that is busy
    while len(read_offline_run(path.parent).steps) < sum(map(len, cells.values())):
        assert time.monotonic() < deadline_s, "W&B's writer did not come to the end"
        time.sleep(0.1)
    return path


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    row = {"policy": "fixed 4", "output_tokens": 11, "tokens_per_s": 2.5, "acceptance_rate": None}
    return _mirror(
        tmp_path_factory.mktemp("run"),
        {"fixed 4/batch 2": STEPS, "confidence/batch 2": STEPS[1:]},
        {"fixed 4/batch 2": row, "confidence/batch 2": {**row, "tokens_per_s": 3.5}},
    )


def _as_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The frame's rows without the values that a row does not have."""
    return [{key: value for key, value in row.items() if value == value} for row in frame.to_dict("records")]


def test_steps_summary_and_config_come_back(run_file: Path) -> None:
    run = read_offline_run(run_file.parents[2])
    assert run.run_id == run_file.stem.removeprefix("run-")
    assert run.config == {"engine": {"seed": 7}, "long": LONG}
    assert _as_rows(run.steps) == [
        {"cell": "fixed_4/batch_2", **step_numbers(STEPS[0])},
        {"cell": "fixed_4/batch_2", **step_numbers(STEPS[1])},
        {"cell": "confidence/batch_2", **step_numbers(STEPS[1])},
    ]
    assert sorted(_as_rows(run.summary), key=lambda row: row["tokens_per_s"]) == [
        {"cell": "fixed_4/batch_2", "output_tokens": 11, "tokens_per_s": 2.5},
        {"cell": "confidence/batch_2", "output_tokens": 11, "tokens_per_s": 3.5},
    ]


def test_a_run_without_cells(tmp_path: Path) -> None:
    run = read_offline_run(_mirror(tmp_path, {"": STEPS}, {"": {"output_tokens": 3}}).parent)
    assert list(run.steps["cell"]) == ["", ""]
    assert _as_rows(run.summary) == [{"cell": "", "output_tokens": 3}]


def _copy(run_file: Path, folder: Path, data: bytes) -> Path:
    (folder / run_file.name).write_bytes(data)
    return folder


def test_a_killed_run_is_read_up_to_its_last_whole_record(run_file: Path, tmp_path: Path) -> None:
    data = run_file.read_bytes()
    whole = read_offline_run(run_file.parent)

    def cut(end: int) -> OfflineRun:
        return read_offline_run(_copy(run_file, tmp_path, data[:end]))

    counts = [len(cut(end).steps) for end in range(len(LONG) + 500, len(data), 250)]
    assert counts == sorted(counts)
    assert {0, len(whole.steps)} <= set(counts)


def test_records_are_those_that_were_written_in_pieces(tmp_path: Path) -> None:
    """Against a writer of the format's description; sizes around a block's end."""
    block, header = wandb_offline._BLOCK, wandb_offline._HEADER.size
    first = block - wandb_offline._START - header
    for size in (first - 20, first - 8, first - 7, first - 1, first, first + 1, 3 * block):
        records = [b"a" * size, b"b" * 30, b""]
        path = tmp_path / f"{size}.wandb"
        path.write_bytes(_written(records))
        assert list(wandb_offline._records(path)) == records, size


def _written(records: list[bytes]) -> bytes:
    """A file of these records, as LevelDB's log_format.md says."""
    data = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        rest, begun = record, False
        while True:
            left = wandb_offline._BLOCK - len(data) % wandb_offline._BLOCK
            if left < wandb_offline._HEADER.size:
                data += bytes(left)
                continue
            piece = rest[: left - wandb_offline._HEADER.size]
            rest = rest[len(piece) :]
            kind = {(0, 0): 1, (0, 1): 2, (1, 1): 3, (1, 0): 4}[int(begun), int(bool(rest))]
            checksum = zlib.crc32(bytes([kind]) + piece)
            data += wandb_offline._HEADER.pack(checksum, len(piece), kind) + piece
            begun = True
            if not rest:
                break
    return bytes(data)


def test_what_is_no_offline_run_is_refused(run_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no offline run of W&B: make one with tracker.mode=offline"):
        read_offline_run(tmp_path)
    with pytest.raises(ValueError, match="is not a W&B run file"):
        read_offline_run(_copy(run_file, tmp_path, b"something else"))
    data = bytearray(run_file.read_bytes())
    data[20] ^= 1
    with pytest.raises(ValueError, match="is damaged at byte 7"):
        read_offline_run(_copy(run_file, tmp_path, bytes(data)))
