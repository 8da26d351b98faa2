"""`dspark replay`: what a live run would have said, room and shares of it, going on, and what is refused."""

from __future__ import annotations

import dataclasses
import os
import signal
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from dspark.analysis.replay import figure
from dspark.analysis.replay import run as replaying
from dspark.analysis.replay.files import read_trace, write_trace
from dspark.analysis.replay.hindsight import JointHindsight
from dspark.analysis.replay.run import replay
from dspark.config.paths import config_dir
from dspark.config.replay import ReplaySettings
from dspark.config.typed import parameters_of
from dspark.cost.published import published_cost
from dspark.policies.fixed import Fixed
from tests.analysis.replay.test_headroom import DEPTH, make_trace
from tests.cli.conftest import Result, read_json, read_lines

NAME = "illusion-llama3.1-8b-h100-eagle"
COST = ("cost=published", f"cost.name={NAME}")
POLICIES = 'policies=["confidence depth=3 threshold=0.5","hf_heuristic start=2 depth=4"]'
GIVEN = ["confidence 0.5 depth=3", "hf_heuristic start=2 depth=4"]
LABELS = [f"fixed {depth}" for depth in range(DEPTH + 1)]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return f"trace={write_trace(make_trace(num=9, length=13), tmp_path / 'trace.parquet')}"


def _arguments(trace: str, *more: str) -> list[str]:
    sizes = ("replay.batch_sizes=[1,4,16]", "replay.num_resamples=100")
    return ["replay", trace, *COST, *sizes, "hydra.run.dir=out", *more]


def test_speeds_room_and_the_shares_of_it(dspark: Callable[..., Result], tmp_path: Path, trace: str) -> None:
    result = dspark(*_arguments(trace, POLICIES))
    assert result.code == 0, result.err
    found = read_json(tmp_path / "out" / "replay.json")
    assert found["schema"] == 1
    policies = [*LABELS, *GIVEN, "oracle"]
    for batch in found["batches"]:
        rows = [row for row in found["rows"] if row["batch_size"] == batch["batch_size"]]
        assert [row["policy"] for row in rows] == policies
        speed = {row["policy"]: row["modelled_tokens_per_s"] for row in rows}
        best = max(LABELS, key=speed.__getitem__)
        assert batch["best_fixed"] == best
        assert batch["modelled_room"] == pytest.approx(speed["oracle"] / speed[best] - 1)
        for row in rows:
            ours = speed[row["policy"]]
            assert row["is_best_fixed"] == (row["policy"] == best)
            assert row["modelled_ratio_to_plain_end_to_end"] == pytest.approx(ours / speed["fixed 0"])
            assert row["modelled_ratio_to_best_fixed"] == pytest.approx(ours / speed[best])
            share = (ours - speed[best]) / (speed["oracle"] - speed[best])
            assert row["modelled_headroom"] == pytest.approx(share)
            for name in ("ratio_to_plain_end_to_end", "ratio_to_best_fixed", "headroom"):
                low, high = row[f"modelled_{name}_interval"]
                assert low <= row[f"modelled_{name}"] <= high
            assert row["cost_model"] == f"published {NAME}"
        assert f"batch {batch['batch_size']}: " in result.out
    for label in policies:
        assert f" {label} " in result.out
    assert "undefined" not in result.out
    png = (tmp_path / "out" / "figures" / "replay.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", png[16:24]) >= (1500, 700)


def test_rows_are_replays_of_requests_that_fill_the_batch(
    dspark: Callable[..., Result], tmp_path: Path, trace: str
) -> None:
    assert dspark(*_arguments(trace)).code == 0
    whole = read_trace(tmp_path / "trace.parquet")
    cost = published_cost(NAME)
    rows = {
        (row["policy"], row["batch_size"]): row for row in read_json(tmp_path / "out" / "replay.json")["rows"]
    }
    # four requests or more for each of 16 rows are 64: 8 times all nine
    for size, times in ((1, 1), (4, 2), (16, 8)):
        copies = whole.of([*range(9)] * times)
        for name, policy in (("fixed 2", Fixed(depth=2)), ("oracle", JointHindsight(depth=DEPTH))):
            done = replay(copies, policy, batch_size=size, cost=cost, prefill_chunk=1 << 30)
            row = rows[name, size]
            assert row["num_requests"] == 9 * times
            assert row["modelled_tokens_per_s"] == pytest.approx(done.tokens_per_s())
            decode = done.decode_tokens_per_s()
            assert row["modelled_decode_tokens_per_s"] == (None if decode is None else pytest.approx(decode))
            assert row["verified_per_row_step"] == pytest.approx(done.rows["verified"].mean())
    for item in read_lines(tmp_path / "out" / "cells.jsonl"):
        seconds = np.array(item["modelled_request_s"])
        times = item["row"]["num_requests"] // 9
        assert times * seconds.sum() == pytest.approx(item["row"]["modelled_wall_s"])


def test_a_row_is_that_of_a_live_run_under_the_modelled_clock(
    dspark: Callable[..., Result], tmp_path: Path
) -> None:
    smoke = ("debug=smoke", "workload.num_requests=4", "sampling.max_new_tokens=10", "drafter=self")
    assert dspark("record", *smoke, "record.depth=3", "hydra.run.dir=trace").code == 0
    one = ("replay.batch_sizes=[1]", "replay.num_resamples=100")
    result = dspark("replay", "trace=trace/trace.parquet", *COST, *one, "hydra.run.dir=out")
    assert result.code == 0, result.err
    clock = ("engine.clock=modelled", *COST, "engine.max_batch_size=1", "verification=coupled")
    assert dspark("run", *smoke, *clock, "policy=fixed", "policy.depth=3", "hydra.run.dir=live").code == 0
    (live,) = read_json(tmp_path / "live" / "summary.json")["rows"]
    rows = {row["policy"]: row for row in read_json(tmp_path / "out" / "replay.json")["rows"]}
    ours = rows["fixed 3"]
    added = {"verified_per_row_step", "is_best_fixed", "modelled_ratio_to_plain"}
    shared = {name for name in ours if name not in added and not name.endswith("_interval")}
    shared -= {"modelled_ratio_to_plain_end_to_end", "modelled_ratio_to_best_fixed", "modelled_headroom"}
    assert shared <= set(live)
    assert not {"wall_s", "tokens_per_s", "ratio_to_plain"} & set(ours)
    for name in shared:
        assert ours[name] == (live[name] if isinstance(live[name], str) else pytest.approx(live[name])), name


def test_a_replay_that_was_stopped_goes_on_where_it_was(
    dspark: Callable[..., Result], tmp_path: Path, trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = _arguments(trace, POLICIES)
    assert dspark(*arguments[:-2], POLICIES, "hydra.run.dir=whole").code == 0
    run, calls = replaying.Replayer.run, []

    def counted(self: replaying.Replayer) -> object:
        calls.append(self.batch_size)
        if len(calls) == 11:
            os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C does
        return run(self)

    monkeypatch.setattr(replaying.Replayer, "run", counted)
    stopped = dspark(*arguments)
    assert stopped.code == 130
    (line,) = [line for line in stopped.err.splitlines() if "interrupted" in line]
    assert line.startswith("dspark: interrupted; go on with: dspark replay ")
    assert line.endswith("resume=true")
    kept = read_lines(tmp_path / "out" / "cells.jsonl")
    assert len(kept) == 10
    assert not (tmp_path / "out" / "replay.json").exists()
    with (tmp_path / "out" / "cells.jsonl").open("a") as file:
        file.write('{"cell":"fixed')  # as if it had been killed
    calls.clear()
    calls += [0] * 11
    assert dspark(*arguments, "resume=true").code == 0
    assert len(calls) - 11 == 3 * (DEPTH + 4) - 10, "what was there ran again"
    ours, whole = (read_json(tmp_path / name / "replay.json") for name in ("out", "whole"))
    assert ours["rows"] == whole["rows"]
    assert ours["batches"] == whole["batches"]
    # going on with another trace would mix two
    write_trace(make_trace(num=9, length=14), tmp_path / "trace.parquet")
    assert "contents_sha256.trace" in dspark(*arguments, "resume=true").error
    # without resume=true the earlier results make room
    assert dspark(*arguments).code == 0
    assert read_json(tmp_path / "out" / "previous-1" / "replay.json")["rows"] == whole["rows"]


def test_where_no_draft_is_ever_right_headroom_is_undefined(
    dspark: Callable[..., Result], tmp_path: Path
) -> None:
    trace = make_trace(num=5, length=9)
    trace.accepted[:] = 0
    write_trace(trace, tmp_path / "trace.parquet")
    result = dspark(*_arguments("trace=trace.parquet", POLICIES))
    assert result.code == 0, result.err
    assert "batch 4: headroom is undefined, because the oracle's lead over fixed 0, 0.00%" in result.out
    rows = read_json(tmp_path / "out" / "replay.json")["rows"]
    assert {row["modelled_headroom"] for row in rows} == {None}


def test_the_figure_draws_what_the_rows_hold(
    dspark: Callable[..., Result], tmp_path: Path, trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {}

    def spy(name: str) -> None:
        original = getattr(figure, name)

        def spied(panel, *arguments):
            original(panel, *arguments)
            seen[name] = panel

        monkeypatch.setattr(figure, name, spied)

    spy("_draw_speeds")
    spy("_draw_shares")
    assert dspark(*_arguments(trace, POLICIES)).code == 0
    rows = read_json(tmp_path / "out" / "replay.json")["rows"]

    def column(key: str, wanted: Callable[[dict], bool]) -> list[float]:
        return [row[key] for row in rows if wanted(row)]

    speeds, shares = (
        {
            line.get_label(): [list(map(float, values)) for values in (line.get_xdata(), line.get_ydata())]
            for line in seen[name].get_lines()
        }
        for name in ("_draw_speeds", "_draw_shares")
    )
    ratio = "modelled_ratio_to_plain_end_to_end"
    assert speeds["best fixed depth (d)"] == [[1, 4, 16], column(ratio, lambda row: row["is_best_fixed"])]
    assert speeds["oracle"] == [[1, 4, 16], column(ratio, lambda row: row["policy"] == "oracle")]
    for name in GIVEN:
        ratios, heads = (
            column(key, lambda row, name=name: row["policy"] == name) for key in (ratio, "modelled_headroom")
        )
        assert (speeds[name], shares[name]) == ([[1, 4, 16], ratios], [[1, 4, 16], heads])
    assert (shares["best fixed depth (d)"][1], shares["oracle"][1]) == ([0, 0], [1, 1])
    notes = [text.get_text() for text in seen["_draw_speeds"].texts]
    assert notes == [f"d={row['policy'].split()[1]}" for row in rows if row["is_best_fixed"]]
    assert seen["_draw_speeds"].get_xscale() == "log"
    # without policies there is the room alone
    alone = [row for row in rows if row["policy"] in (*LABELS, "oracle")]
    seen.clear()
    figure.draw_replay(alone, tmp_path / "alone.png", title="t")
    assert list(seen) == ["_draw_speeds"]


def test_a_default_depth_becomes_the_traces_and_a_given_one_does_not(
    dspark: Callable[..., Result], tmp_path: Path, trace: str
) -> None:
    result = dspark(*_arguments(trace, "policies=[confidence 0.5,'confidence depth=3']"))
    assert result.code == 0, result.err
    assert result.err.count("in place of its default") == 1
    told = "confidence 0.5 depth=4: depth 4, which the trace holds, in place of its default "
    assert told in result.err
    rows = read_json(tmp_path / "out" / "replay.json")["rows"]
    given = [row["policy"] for row in rows if row["policy"].startswith("confidence")]
    assert set(given) == {"confidence 0.5 depth=4", "confidence depth=3"}


def test_the_yaml_lists_every_field() -> None:
    node = yaml.safe_load((config_dir() / "replay.yaml").read_text(encoding="utf-8"))
    assert set(node["replay"]) == set(parameters_of(ReplaySettings))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cost=none"], "`replay` needs a cost model, because a trace holds no seconds"),
        (["replay.batch_sizes=[]"], "replay: batch_sizes must ascend, from 1 or more, got []"),
        (["replay.batch_sizes=[4,4]"], "replay: batch_sizes must ascend, from 1 or more, got [4, 4]"),
        (["replay.batch_sizes=[0,4]"], "replay: batch_sizes must ascend, from 1 or more, got [0, 4]"),
        (["replay.confidence=1.0"], "replay: confidence must be in [0.5, 1), got 1.0"),
        (["replay.num_resamples=9"], "replay: num_resamples must be >= 100, got 9"),
        (["replay.max_depth=2"], "replay has no setting 'max_depth'"),
        (
            ["policies=['confidence depth=5']"],
            "policies: Confidence may draft up to 5 tokens, and the trace holds drafts of 4",
        ),
        (
            ["policies=['confidence depth=3','confidence 0.4 depth=3']"],
            "policies lists the policy 'confidence depth=3' twice: leave one out",
        ),
        (["policies=[svip]"], "needs the signal entropy, which the trace does not hold"),
        (["policies=[fixd]"], "fixd"),
        (["trace=nothing.parquet"], "there is no trace nothing.parquet: make one with `dspark record`"),
        (["resume=true"], "nothing to resume in"),
    ],
)
def test_replay_refuses(
    dspark: Callable[..., Result], tmp_path: Path, trace: str, arguments: list[str], message: str
) -> None:
    given = _arguments(trace)
    if arguments[0] == "cost=none":
        given = [word for word in given if not word.startswith("cost.")]
    assert message in dspark(*given, *arguments).error
    assert not (tmp_path / "out" / "cells.jsonl").exists()


def test_a_trace_without_positions_or_of_a_live_run_is_refused(
    dspark: Callable[..., Result], tmp_path: Path
) -> None:
    write_trace(make_trace(num=3, length=1), tmp_path / "trace.parquet")
    assert "one output token each" in dspark(*_arguments("trace=trace.parquet")).error
    seen = dataclasses.replace(make_trace(num=3, length=5), visited_only=True)
    write_trace(seen, tmp_path / "trace.parquet")
    assert "`replay` needs every position" in dspark(*_arguments("trace=trace.parquet")).error
