"""A whole comparison on a tiny model: cells, artefacts, agreement of tokens, ratios."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from dspark.cli.compare import Cell, plan_cells, summary_rows
from dspark.metrics.summary import tokens_sha256
from tests.cli.conftest import read_json, read_lines, run_process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result

SMOKE = ("debug=smoke", "hydra.run.dir=out")
SCHEMA = {
    *("policy", "drafter", "verification", "batch_size", "workload", "num_requests", "output_tokens"),
    *("numerics", "wall_s", "tokens_per_s", "decode_tokens_per_s", "acceptance_length", "acceptance_rate"),
    *("drafted_tokens", "verified_tokens", "accepted_tokens", "target_passes", "time_split_s"),
    "tokens_sha256",
}


# ---- order of cells --------------------------------------------------------------------------


def test_every_cell_runs_once_and_policies_take_turns_in_being_first() -> None:
    cells = plan_cells(["a", "b", "c"], [1, 8], 3)
    assert len(cells) == len(set(cells)) == 18
    firsts = [group[0].policy for group in (cells[i : i + 3] for i in range(0, 18, 3))]
    assert Counter(firsts) == {"a": 2, "b": 2, "c": 2}
    assert [cell.repeat for cell in cells] == [0] * 6 + [1] * 6 + [2] * 6
    assert cells[0] == Cell(policy="a", batch_size=1, repeat=0)
    assert len({cell.name for cell in cells}) == 18


def test_rows_of_cells_get_their_ratio_at_their_own_batch_size() -> None:
    def cell(policy: str, size: int, repeat: int, speed: float) -> dict[str, Any]:
        speeds = {"decode_tokens_per_s": speed, "tokens_per_s": speed, "wall_s": 1 / speed}
        return {"policy": policy, "batch_size": size, "repeat": repeat, "tokens_sha256": "x", **speeds}

    cells = {
        str(i): each
        for i, each in enumerate(
            [
                cell("p", 1, 0, 30.0),
                cell("plain", 1, 0, 10.0),
                cell("plain", 8, 0, 50.0),
                cell("p", 8, 0, 25.0),
            ]
        )
    }
    rows = summary_rows(cells, ["plain", "p"], [1, 8], "plain")
    assert [(row["policy"], row["batch_size"], row["ratio_to_plain"]) for row in rows] == [
        ("plain", 1, 1.0),
        ("p", 1, 3.0),
        ("plain", 8, 1.0),
        ("p", 8, 0.5),
    ]
    assert all(row["ratio_to_plain"] is None for row in summary_rows(cells, ["plain", "p"], [1, 8], None))


# ---- a whole comparison ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """The default comparison with two repeats, on the tiny model, in a process of its own."""
    folder = tmp_path_factory.mktemp("compared")
    result = run_process(
        ["compare", *SMOKE, "compare.repeats=2", "compare.batch_sizes=[1,2]"], folder, model_cache
    )
    assert result.code == 0, result.err
    return result, folder / "out"


def test_the_summary_has_a_row_a_policy_and_batch_size_in_the_published_schema(
    compared: tuple[Result, Path],
) -> None:
    _, folder = compared
    summary = read_json(folder / "summary.json")
    assert (summary["schema"], summary["complete"], summary["baseline"]) == (1, True, "fixed 0")
    assert summary["command"].startswith("dspark compare debug=smoke ")
    rows = summary["rows"]
    assert [(row["policy"], row["batch_size"]) for row in rows] == [
        (policy, size) for size in (1, 2) for policy in ("fixed 0", "fixed 4", "batch_table", "confidence")
    ]
    for row in rows:
        assert set(row) >= SCHEMA
        assert row["num_requests"] == 2
        assert row["num_repeats"] == 2
        assert row["numerics"] == "fast"
        assert sum(row["time_split_s"].values()) == pytest.approx(row["wall_s"])
        assert row["verified_tokens"] <= row["drafted_tokens"]
    plain = [row for row in rows if row["policy"] == "fixed 0"]
    assert [(row["ratio_to_plain"], row["drafted_tokens"], row["acceptance_rate"]) for row in plain] == [
        (1.0, 0, None),
        (1.0, 0, None),
    ]
    assert all(row["drafted_tokens"] > 0 for row in rows if row["policy"] == "fixed 4")


def test_the_files_hold_every_step_and_output(compared: tuple[Result, Path]) -> None:
    _, folder = compared
    steps, outputs = read_lines(folder / "steps.jsonl"), read_lines(folder / "outputs.jsonl")
    cells = read_lines(folder / "cells.jsonl")
    assert len(cells) == 4 * 2 * 2
    for cell in cells:
        own = [step for step in steps if step["cell"] == cell["cell"]]
        done = {item["request_id"]: item for item in outputs if item["cell"] == cell["cell"]}
        row = cell["row"]
        assert sum(step["wall_s"] for step in own) == pytest.approx(row["wall_s"])
        assert sum(len(ids) for step in own for ids in step["tokens"].values()) == row["output_tokens"]
        assert sum(sum(step["rows"]["drafted"]) for step in own) == row["drafted_tokens"]
        assert tokens_sha256([item["token_ids"] for item in done.values()]) == row["tokens_sha256"]
        streamed: dict[str, list[int]] = {}
        for step in own:
            for name, ids in step["tokens"].items():
                streamed.setdefault(name, []).extend(ids)
        assert streamed == {name: item["token_ids"] for name, item in done.items()}


def test_table_figure_and_paths_are_printed(compared: tuple[Result, Path]) -> None:
    result, folder = compared
    assert (folder / "figures" / "tokens_per_s.png").read_bytes().startswith(b"\x89PNG")
    assert str(folder / "summary.json") in result.out
    for policy in ("fixed 0", "fixed 4", "batch_table", "confidence"):
        assert policy in result.out
    assert re.search(r"identical tokens in all 16 cells \(sha256 [0-9a-f]{64}\)", result.out)
    assert "cell 16 of 16" in result.err  # plain lines, since this is no terminal


def test_provenance_tells_where_the_result_comes_from(compared: tuple[Result, Path]) -> None:
    _, folder = compared
    origin = read_json(folder / "provenance.json")
    assert {"dspark", "python", "torch", "transformers"} <= set(origin["versions"])
    assert origin["device"] == "cpu"
    assert origin["threads"] >= 1
    assert origin["machine"]["num_cpus"] >= 1
    assert origin["config"]["compare"]["repeats"] == 2
    assert origin["resumed"] == []
    assert (folder / ".hydra" / "config.yaml").exists()


def test_invariant_numerics_give_one_hash(dspark: Callable[..., Result], tmp_path: Path) -> None:
    result = dspark("compare", *SMOKE, "engine.numerics=invariant", "sampling.temperature=0.9")
    assert result.code == 0, result.err
    assert "identical tokens in all 12 cells" in result.out
    rows = read_json(tmp_path / "out" / "summary.json")["rows"]
    assert len({row["tokens_sha256"] for row in rows}) == 1


def test_a_broken_promise_of_invariance_is_exit_code_1(
    dspark: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rows of an engine that gives other tokens at batch size 2
    from dspark.cli.session import Session

    original = Session.engine

    def other_seed(self: Session, policy: str, batch_size: int) -> Any:
        engine = original(self, policy, batch_size)
        engine.requests._seed = batch_size
        return engine

    monkeypatch.setattr(Session, "engine", other_seed)
    arguments = ["engine.numerics=invariant", "sampling.temperature=0.9", "compare.batch_sizes=[1,2]"]
    result = dspark("compare", *SMOKE, *arguments)
    assert result.code == 1
    assert (
        "BROKEN: numerics=invariant promises the same tokens everywhere, and 4 of 8 cells differ"
        in result.out
    )
    tokens = read_json(tmp_path / "out" / "summary.json")["tokens"]
    assert not tokens["identical"]
    assert {item["cell"].split("/")[1] for item in tokens["divergences"]} == {"batch 2"}


def test_divergences_in_fast_numerics_are_listed_with_their_margin(
    dspark: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dspark.cli.rundir import RunDir

    original = RunDir.completions

    def one_token_off(self: RunDir, cell: str, requests: Any) -> Any:
        from dataclasses import replace

        found = original(self, cell, requests)
        if cell.startswith("fixed 4/batch 2"):
            name, done = next(iter(found.items()))
            ids = (*done.token_ids[:3], (done.token_ids[3] + 1) % 256, *done.token_ids[4:])
            found[name] = replace(done, token_ids=ids)
        return found

    monkeypatch.setattr(RunDir, "completions", one_token_off)
    result = dspark("compare", *SMOKE, "compare.policies=[fixed 4]", "compare.batch_sizes=[1,2]")
    assert result.code == 0, result.err
    assert "3 of 4 cells have the tokens of fixed 0/batch 1" in result.out
    (line,) = [line for line in result.out.splitlines() if line.startswith("  request ")]
    assert re.search(
        r"output token 3: \d+ became \d+, logit margin [\d.e+-]+, in fixed 4/batch 2/repeat 0", line
    )
    (found,) = read_json(tmp_path / "out" / "summary.json")["tokens"]["divergences"]
    assert found["position"] == 3
    assert found["logit_margin"] > 0  # the reference's greedy token scores highest


def test_samples_of_rejection_may_differ_and_the_output_says_why(dspark: Callable[..., Result]) -> None:
    arguments = [
        "verification=rejection",
        "sampling.temperature=1.5",
        "drafter=self",
        "sampling.max_new_tokens=24",
    ]
    result = dspark("compare", *SMOKE, *arguments, "compare.batch_sizes=[1]")
    assert result.code == 0, result.err
    assert "tokens differ between cells, as they may" in result.out


def test_synthetic_acceptance_is_labelled(dspark: Callable[..., Result], tmp_path: Path) -> None:
    arguments = ["drafter=synthetic", "verification=synthetic", "compare.policies=[fixed 0,fixed 4]"]
    result = dspark("compare", *SMOKE, *arguments, "compare.batch_sizes=[1]")
    assert result.code == 0, result.err
    assert "the text is not the target's" in result.out
    rows = read_json(tmp_path / "out" / "summary.json")["rows"]
    assert [(row["verification"], row["lossless"]) for row in rows] == [("synthetic", False)] * 2


def test_the_baseline_is_added_unless_it_is_null(dspark: Callable[..., Result], tmp_path: Path) -> None:
    result = dspark("compare", *SMOKE, "compare.policies=[confidence 0.5]")
    assert result.code == 0, result.err
    rows = read_json(tmp_path / "out" / "summary.json")["rows"]
    assert {row["policy"] for row in rows} == {"fixed 0", "confidence 0.5"}
    arguments = ["compare.policies=[confidence]", "compare.baseline=null", "hydra.run.dir=other"]
    assert dspark("compare", *SMOKE, *arguments).code == 0
    rows = read_json(tmp_path / "other" / "summary.json")["rows"]
    assert {row["policy"] for row in rows} == {"confidence"}
    assert all(row["ratio_to_plain"] is None for row in rows)


def test_a_policy_of_ones_own_needs_a_file_and_a_yaml(
    dspark: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.config.test_build import MODULE

    (tmp_path / "my_policies.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine" / "policy").mkdir(parents=True)
    (tmp_path / "mine" / "policy" / "even.yaml").write_text("_target_: my_policies.Even\npairs: 1\n")
    own = ["--config-dir", str(tmp_path / "mine")]
    result = dspark("compare", *own, *SMOKE, "compare.policies=[even 2]", "compare.batch_sizes=[1]")
    assert result.code == 0, result.err
    assert {row["policy"] for row in read_json(tmp_path / "out" / "summary.json")["rows"]} == {
        "fixed 0",
        "even 2",
    }
    result = dspark("run", *own, "debug=smoke", "hydra.run.dir=run", "policy=even")
    assert result.code == 0, result.err
    assert read_json(tmp_path / "run" / "summary.json")["rows"][0]["policy"] == "even 1"


def test_earlier_results_are_moved_aside(dspark: Callable[..., Result], tmp_path: Path) -> None:
    for _ in range(3):
        assert dspark("run", *SMOKE).code == 0
    folder = tmp_path / "out"
    assert (folder / "summary.json").exists()
    assert sorted(path.name for path in folder.glob("previous-*")) == ["previous-1", "previous-2"]
    assert (folder / "previous-1" / "steps.jsonl").exists()
    assert len(read_lines(folder / "outputs.jsonl")) == 2
