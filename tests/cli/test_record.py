"""`dspark record`: a trace that replays like live runs, goes on after a stop, and refuses what is inexact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dspark.analysis.replay.files import read_trace, write_trace
from dspark.analysis.replay.run import replay
from dspark.cost.published import published_cost
from dspark.metrics.trace import read_jsonl, step_from_json
from dspark.policies.confidence import Confidence
from dspark.policies.fixed import Fixed
from tests.cli.conftest import Result

SMOKE = ("debug=smoke", "workload.num_requests=3", "sampling.max_new_tokens=10", "drafter=self")
RECORD = ("record", *SMOKE, "record.depth=3", "hydra.run.dir=trace")


@pytest.mark.parametrize("temperature", ["0.0", "0.9"])
def test_a_trace_replays_what_a_run_does(
    dspark: Callable[..., Result], tmp_path: Path, temperature: str
) -> None:
    sampling = f"sampling.temperature={temperature}"
    result = dspark(*RECORD, sampling, "engine.max_batch_size=3")
    assert result.code == 0, result.err
    assert "accepted up to k: " in result.out
    trace = read_trace(tmp_path / "trace" / "trace.parquet")
    assert (trace.depth, trace.num_requests) == (3, 3)
    assert trace.origin["verification"] == "coupled"
    policies = {
        ("policy=fixed", "policy.depth=2"): Fixed(depth=2),
        ("policy=confidence", "policy.depth=3", "policy.threshold=0.02"): Confidence(depth=3, threshold=0.02),
    }
    cost = published_cost("illusion-llama3.1-8b-h100-eagle")
    for number, (arguments, policy) in enumerate(policies.items()):
        folder = tmp_path / f"run-{number}"
        batch = ("engine.max_batch_size=2", "verification=coupled", f"hydra.run.dir={folder}")
        assert dspark("run", *SMOKE, sampling, *arguments, *batch).code == 0
        steps = [step_from_json(line) for line in read_jsonl(folder / "steps.jsonl")]
        live = [row for step in steps for row in step.rows]
        ours = replay(trace, policy, batch_size=2, cost=cost)
        for field in ("planned", "drafted", "verified", "accepted", "emitted", "context"):
            assert [getattr(row, field) for row in live] == ours.rows[field].tolist(), field


def test_a_recording_that_was_stopped_goes_on(
    dspark: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = dspark(*RECORD[:-1], "hydra.run.dir=whole")
    assert whole.code == 0
    from dspark.metrics.observations import observation_to_json

    calls = []

    def interrupted(*args: object, **kwargs: object) -> dict:
        calls.append(1)
        if len(calls) == 14:
            raise KeyboardInterrupt
        return observation_to_json(*args, **kwargs)  # type: ignore[arg-type]

    one_at_a_time = "engine.max_batch_size=1"
    monkeypatch.setattr("dspark.metrics.observations.observation_to_json", interrupted)
    assert dspark(*RECORD, one_at_a_time).code == 130
    assert not (tmp_path / "trace" / "trace.parquet").exists()
    assert dspark(*RECORD, one_at_a_time, "resume=true").code == 0
    first, again = (read_trace(tmp_path / name / "trace.parquet") for name in ("whole", "trace"))
    assert again.request_ids == first.request_ids
    for name in ("drafted", "accepted", "output_tokens", "max_tokens"):
        assert getattr(again, name).tolist() == getattr(first, name).tolist()
    for signal, values in first.signals.items():
        np.testing.assert_allclose(again.signals[signal], values, rtol=1e-4, atol=1e-5)


def test_files_give_back_what_was_written(dspark: Callable[..., Result], tmp_path: Path) -> None:
    assert dspark(*RECORD).code == 0
    trace = read_trace(tmp_path / "trace" / "trace.parquet")
    again = read_trace(write_trace(trace, tmp_path / "copy.parquet"))
    assert again.origin == trace.origin
    assert again.request_ids == trace.request_ids
    for name in ("prompt_tokens", "output_tokens", "max_tokens", "drafted", "accepted"):
        assert getattr(again, name).tolist() == getattr(trace, name).tolist()
    for signal, values in trace.signals.items():
        np.testing.assert_array_equal(again.signals[signal], values)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="cannot read the trace"):
        read_trace(tmp_path / "broken.parquet")
    with pytest.raises(ValueError, match="there is no trace .*: make one with `dspark record`"):
        read_trace(tmp_path / "nothing.parquet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verification=rejection"], "a trace needs verification greedy or coupled, .* got rejection"),
        (["record.depth=0"], "record: depth must be >= 1, got 0"),
        (["drafter=none"], "`record` needs a drafter, got drafter=none"),
        (["policy=fixed"], "`record` drafts at every position and takes no policy"),
    ],
)
def test_record_refuses(dspark: Callable[..., Result], arguments: list[str], message: str) -> None:
    import re

    result = dspark(*RECORD, *arguments)
    assert result.code == 2
    assert re.search(message, result.err), result.err
