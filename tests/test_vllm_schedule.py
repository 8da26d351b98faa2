"""``python -m experiments.peers.vllm_schedule`` with a stand-in for vLLM: what it is given and survives."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from dspark.analysis.replay.files import read_trace
from dspark.analysis.replay.run import replay
from dspark.cost.profile_file import profile_cost
from dspark.policies.batch_table import BatchTable
from dspark.policies.fixed import Fixed
from experiments.bench.measure import Measurement
from experiments.peers import setup, vllm_sides
from experiments.peers.vllm_schedule import __main__ as experiment
from experiments.peers.vllm_schedule.options import parse
from experiments.peers.vllm_schedule.report import PLAIN, TUNED, rows_of
from tests.documents import REPO, blocks, command_lines
from tests.test_replay_against_live import PROFILE

# stands for the package: says what it was given, a token takes a centisecond; fixed 3 does not come up, and
# a depth that changes with the batch ends the process, as is reported of the CPU build (vllm#47014)
FAKE_VLLM = """
import json, sys, time
from types import SimpleNamespace
__version__ = "0.0"
class SamplingParams(SimpleNamespace): pass
def TokensPrompt(prompt_token_ids): return prompt_token_ids
class LLM:
    def __init__(self, **settings):
        self.config = settings["speculative_config"] or {}
        print("given " + json.dumps(settings["speculative_config"]), flush=True)
        if self.config.get("num_speculative_tokens") == 3:
            sys.exit("no such depth")
    def generate(self, prompts, params, use_tqdm):
        if "num_speculative_tokens_per_batch_size" in self.config and len(prompts) == 2:
            raise RuntimeError("The size of tensor a (5) must match the size of tensor b (7)")
        time.sleep(0.01 * params.max_tokens)
        tokens = [prompt[:1] * params.max_tokens for prompt in prompts]
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=tuple(ids))]) for ids in tokens]
"""
SCHEDULE = {
    "schema": 1,
    "ranges": [[1, 1, 2], [2, 3, 1], [4, 4, 0]],
    **dict.fromkeys(("target", "drafter", "cost", "command")),
}


@pytest.fixture
def fake_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "vllm"
    folder.mkdir()
    (folder / "vllm.py").write_text(FAKE_VLLM)
    (folder / "torch.py").write_text("def get_num_threads(): return 1")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(vllm_sides, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(setup, "is_installed", lambda: True)
    for name in ("draw_step_time", "draw_tokens_per_s"):  # of the profile, which take most of its seconds
        monkeypatch.setattr(f"dspark.analysis.profile_figures.{name}", lambda profile, path: path)


def _arguments(target: Path, out: Path, *more: str) -> list[str]:
    return [
        *("--target", str(target), "--out", str(out), "--new-tokens", "6", "--threads", "1"),
        *("--repeats", "1", "--profile", *PROFILE, *more),
    ]


@pytest.mark.usefixtures("fake_vllm")
def test_the_exported_table_is_served_and_what_dies_is_told(
    tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule, out = tmp_path / "mine.json", tmp_path / "out"
    schedule.write_text(json.dumps(SCHEDULE))
    more = ("--schedule", str(schedule), "--batch-sizes", "1", "2", "4", "--depths", "2", "3")
    assert experiment.main(_arguments(tiny_llama, out, *more)) == 3
    content = json.loads((out / "vllm_schedule.json").read_text())

    exported = json.loads((out / "export" / "speculative.json").read_text())
    assert content["exported"] == exported
    assert exported["num_speculative_tokens_per_batch_size"] == SCHEDULE["ranges"]
    given = json.loads(_log(out, 1, "tuned_table").splitlines()[0].removeprefix("given "))
    assert given == exported | {"prompt_lookup_max": 3, "prompt_lookup_min": 1}
    assert _log(out, 1, "no_speculation").startswith("given null")

    sides = {(row["side"], row["batch_size"]) for row in content["rows"]}
    names = (PLAIN, "fixed 2", "fixed 3", TUNED)
    assert sides == {(name, size) for name in names for size in (1, 2, 4)}
    missing = {
        (row["side"], row["batch_size"])
        for row in content["rows"]
        if row["measured_decode_tokens_per_s"] is None
    }
    assert missing == {(TUNED, 2), ("fixed 3", 1), ("fixed 3", 2), ("fixed 3", 4)}
    found = [(finding["side"], finding["batch_size"]) for finding in content["findings"]]
    assert found == [("fixed 3", None), (TUNED, 2)]
    assert "no such depth" in content["findings"][0]["said"]
    assert "The size of tensor a (5) must match" in content["findings"][1]["said"]
    assert "The size of tensor" not in _log(out, 2, "tuned_table"), "started again for the next batch size"
    told = capsys.readouterr().out
    assert "tuned table failed at batch size 2: tuned table ended with code 1" in told
    assert (out / "vllm_schedule.png").read_bytes().startswith(b"\x89PNG")

    trace = read_trace(out / "trace" / "trace.parquet")
    cost = profile_cost(out / "profile" / "profile.json")
    policies = {
        PLAIN: Fixed(depth=0),
        "fixed 2": Fixed(depth=2),
        TUNED: BatchTable(ranges=SCHEDULE["ranges"]),
    }
    for row in content["rows"]:
        if row["side"] in policies:
            size = row["batch_size"]
            requests, policy = trace.of(range(size)), policies[row["side"]]
            done = replay(requests, policy, batch_size=size, cost=cost, prefill_chunk=10_000)
            assert row["modelled_decode_tokens_per_s"] == pytest.approx(done.decode_tokens_per_s())
        if row["measured_decode_tokens_per_s"] is not None:
            seconds = row["long_s"][0] - row["short_s"][0]  # of the five tokens behind each row's first
            assert row["measured_decode_tokens_per_s"] == pytest.approx(row["batch_size"] * 5 / seconds)
            assert row["same_rows"] == row["batch_size"]


def _log(out: Path, start: int, side: str) -> str:
    return (out / "logs" / f"start_{start}" / f"{side}.log").read_text()


@pytest.mark.usefixtures("fake_vllm")
def test_a_tuned_table_that_never_drafts_is_no_side_of_its_own(
    tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    # the target is random and does not repeat itself, so that no draft is ever right
    code = experiment.main(_arguments(tiny_llama, out, "--batch-sizes", "1", "2", "--depths", "1", "2"))
    content = json.loads((out / "vllm_schedule.json").read_text())
    assert [depth for _, _, depth in content["schedule"]["ranges"]] == [0]
    assert content["exported"] is None
    assert {row["side"] for row in content["rows"]} == {PLAIN, "fixed 1", "fixed 2"}
    assert "left out: tuned table: its depths are all 0" in " ".join(capsys.readouterr().out.split())
    assert (code, content["findings"]) == (0, [])


def test_errors_by_hand() -> None:
    def measured(side: str, decode_s: float) -> Measurement:
        return Measurement(
            side=side, batch_size=2, num_new=11, long_s=[decode_s + 1], short_s=[1.0], same_rows=2
        )

    modelled = {(PLAIN, 2): 12.0, ("fixed 1", 2): 18.0, (TUNED, 2): 24.0}
    # twenty tokens: plain 10 a second, fixed 1 20 a second, and the table died
    rows = rows_of([PLAIN, "fixed 1", TUNED], [2], [measured(PLAIN, 2.0), measured("fixed 1", 1.0)], modelled)
    plain, fixed, tuned = rows
    assert plain["error"] == pytest.approx(0.2)
    assert (plain["measured_over_plain"], plain["error_over_plain"]) == (1, 0)
    assert fixed["error"] == pytest.approx(-0.1)
    assert (fixed["measured_over_plain"], fixed["modelled_over_plain"]) == (2, 1.5)
    assert fixed["error_over_plain"] == pytest.approx(-0.25)
    assert tuned["modelled_over_plain"] == 2
    assert (tuned["error"], tuned["error_over_plain"], tuned["same_rows"]) == (None, None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "nowhere at all"], "model source 'nowhere at all' not found"),
        (["--batch-sizes", "4", "2"], "--batch-sizes must ascend from 1 or more, got [4, 2]"),
        (["--depths", "0", "2"], "--depths must ascend from 1 or more, got [0, 2]"),
        (["--new-tokens", "1"], "--new-tokens must be >= 2, got 1"),
        ([], "vLLM's own environment is not set up: run make peers-setup"),
    ],
)
def test_bad_input(
    arguments: list[str],
    message: str,
    tiny_llama: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(setup, "is_installed", lambda: False)
    out = tmp_path / "out"
    assert experiment.main(["--target", str(tiny_llama), "--out", str(out), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_documented_commands_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    page = REPO / "experiments" / "peers" / "vllm_schedule" / "README.md"
    lines = [line for block in blocks(page, "bash") for line in command_lines(block)]
    assert lines[0] == setup.COMMAND
    module = "experiments.peers.vllm_schedule"
    monkeypatch.setattr(f"{module}.options.check_source", lambda source: None)  # where it is missing
    for line in lines[1:]:
        words = shlex.split(line)
        assert words[:3] == ["python", "-m", module]
        assert parse(words[3:]).batch_sizes[0] == 1
    assert f"`{lines[1]}`" in (REPO / "experiments" / "README.md").read_text()
