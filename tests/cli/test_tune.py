"""`dspark tune`: a schedule that export reads, with what it gains, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dspark.analysis.replay.files import write_trace
from dspark.analysis.schedule import load_schedule
from tests.analysis.test_tuning import DEPTH, make_trace
from tests.cli.conftest import Result, read_json

COST = ("cost=published", "cost.name=illusion-llama3.1-8b-h100-eagle")


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = write_trace(make_trace(0.6, num=24, length=21), tmp_path / "trace.parquet")
    return f"trace={path}"


def _arguments(trace: str, *more: str) -> list[str]:
    sizes = ("tune.batch_sizes=[1,8,64]", "tune.max_batch_size=128", "tune.num_resamples=50")
    return ["tune", trace, *COST, *sizes, "hydra.run.dir=out", "out=schedule.json", *more]


def test_a_schedule_and_what_it_gains(dspark: Callable[..., Result], tmp_path: Path, trace: str) -> None:
    result = dspark(*_arguments(trace, "policies=[batch_table]"))
    assert result.code == 0, result.err
    schedule = load_schedule(tmp_path / "schedule.json")
    assert schedule.depths[0][0] == 1
    assert schedule.depths[-1][1] == 128
    assert schedule.cost == "illusion-llama3.1-8b-h100-eagle"
    found = read_json(tmp_path / "out" / "tuning.json")
    assert [size["batch_size"] for size in found["sizes"]] == [1, 8, 64]
    policies = {row["policy"] for row in found["rows"]}
    assert policies == {"tuned", "batch_table", *(f"fixed {depth}" for depth in range(DEPTH + 1))}
    speed = {(row["policy"], row["batch_size"]): row["modelled_tokens_per_s"] for row in found["rows"]}
    for size in found["sizes"]:
        # the schedule is the chosen depth at each batch size that it was tuned for
        chosen = speed[f"fixed {size['chosen']}", size["batch_size"]]
        assert speed["tuned", size["batch_size"]] == pytest.approx(chosen, rel=0.03)
    assert (tmp_path / "out" / "figures" / "tuning.png").is_file()
    assert f"batch size 1 to {schedule.depths[0][1]}: depth {schedule.depths[0][2]}" in result.out
    exported = dspark("export", "to=vllm", "export.schedule=schedule.json", "export.method=ngram")
    assert exported.code == 0, exported.err
    assert '"num_speculative_tokens_per_batch_size"' in exported.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cost=none"], "`tune` needs a cost model: measure this machine with `dspark profile`"),
        (["tune.batch_sizes=[2]"], "batch_sizes must ascend from 1, got [2]"),
        (["tune.max_depth=9"], "max_depth must be in [1, 5], the trace's, got 9"),
        (["policies=[confidence]"], "needs the signal token_probability, which the trace does not hold"),
        (["trace=nothing.parquet"], "there is no trace nothing.parquet: make one with `dspark record`"),
        (["policies=[fixd]"], "fixd"),
    ],
)
def test_tune_refuses(
    dspark: Callable[..., Result], tmp_path: Path, trace: str, arguments: list[str], message: str
) -> None:
    given = _arguments(trace)
    if arguments[0] == "cost=none":
        given = [word for word in given if not word.startswith("cost.")]
    result = dspark(*given, *arguments)
    assert message in result.error
    assert not (tmp_path / "schedule.json").exists()
