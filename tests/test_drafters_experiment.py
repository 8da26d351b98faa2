"""``python -m experiments.drafters``: what it writes, that nothing runs twice, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.drafters import __main__ as drafters
from experiments.drafters import cells
from experiments.drafters.rounds import rounds_of

SETTINGS = ("debug=smoke", "workload.num_requests=2", "sampling.max_new_tokens=12")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("humaneval", "mt-bench"):
        lines = [json.dumps({"turns": [f"{name} says: one two one two one two {i}"]}) for i in range(3)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def _arguments(data: Path, out: Path, *more: str) -> list[str]:
    return [
        *("--data", str(data), "--out", str(out), "--prompts", "humaneval", "mt-bench", "--depth", "3"),
        *("--drafter", "ngram=ngram", "--drafter", "itself=self", *more, *SETTINGS),
    ]


def test_every_drafter_on_every_set_and_temperature(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert drafters.main(_arguments(data, out, "--temperature", "0", "1", "--")) == 0
    rows = json.loads((out / "drafters.json").read_text())["rows"]
    assert {(row["drafter"], row["prompts"], row["temperature"]) for row in rows} == {
        (drafter, prompts, temperature)
        for drafter in ("ngram", "itself")
        for prompts in ("humaneval", "mt-bench")
        for temperature in (0.0, 1.0)
    }
    # the target drafting for itself is always right; its last rounds are cut by the end of the text
    itself = [row for row in rows if row["drafter"] == "itself"]
    assert all(row["acceptance_rate"] == 1.0 for row in itself)
    assert all(row["num_requests"] == 2 for row in rows)
    assert (out / "drafters.png").stat().st_size > 1000

    def refuse(arguments: list[str]) -> int:
        raise AssertionError(f"run again: {arguments}")

    monkeypatch.setattr(cells, "dspark", refuse)
    capsys.readouterr()
    assert drafters.main(_arguments(data, out, "--temperature", "0", "1", "--")) == 0
    assert "tokens a round over all rounds (acceptance length" in capsys.readouterr().out
    for row in rows:
        _check_rounds(row, out)


def _check_rounds(row: dict[str, Any], out: Path) -> None:
    """Tokens a round, from the text alone: what each request says behind its first token, over its rounds."""
    folder = out / f"{row['drafter']}-{row['prompts']}-t{row['temperature']:g}"
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    rounds = [request for step in steps for request in step["rows"]["request_id"]]
    drafts = [drafted for step in steps for drafted in step["rows"]["drafted"]]
    emitted = row["output_tokens"] - row["num_requests"]
    assert row["tokens_a_round"] == pytest.approx(emitted / len(rounds))
    assert row["drafted_share"] == pytest.approx(np.mean([drafted > 0 for drafted in drafts]))


def test_a_round_without_a_draft_counts(tmp_path: Path) -> None:
    rows = [
        {"emitted": [4, 1], "drafted": [3, 0], "request_id": ["a", "b"]},
        {"emitted": [1], "drafted": [0], "request_id": ["b"]},
    ]
    steps = [{"cell": "run", "attempt": 0, "step": i, "rows": each} for i, each in enumerate(rows)]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    found = rounds_of(tmp_path)
    assert found == {"tokens_a_round": pytest.approx(6 / 3), "drafted_share": pytest.approx(1 / 3)}
    (tmp_path / "steps.jsonl").write_text("")
    with pytest.raises(ValueError, match="has no decode step"):
        rounds_of(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--drafter", "ngram"], "a drafter is NAME=KIND[:SOURCE], such as ngram=ngram, got 'ngram'"),
        (["--prompts", "gsm8k"], "has no gsm8k.jsonl: give --data"),
    ],
)
def test_bad_input(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: list[str], message: str
) -> None:
    assert drafters.main(["--data", str(data), "--out", str(tmp_path / "out"), *change]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_run_that_is_refused_is_told(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = _arguments(data, tmp_path / "out", "--temperature", "0", "--")
    assert drafters.main([*arguments, "policy.depth=-1"]) == 2
    assert "did not end well" in capsys.readouterr().err
