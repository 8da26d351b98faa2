"""What is impossible is refused before a model loads: one line, exit code 2, nothing left behind."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from dspark.cli import session
from dspark.models.synthetic import make_synthetic_target
from tests.policies.timed import bar_s

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Result

SMOKE = ("debug=smoke", "hydra.run.dir=out")


@pytest.fixture(autouse=True)
def _no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if anything gets as far as loading a model."""

    def refuse(*arguments: object, **settings: object) -> None:
        raise AssertionError("a model was loaded before the command was refused")

    monkeypatch.setattr(session, "load_target", refuse)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["policy=fixd"], "policy=fixd: no such policy; did you mean 'fixed'?"),
        (["policy.dept=1"], "policy has no setting 'dept'"),
        (["policy.depth=-1"], "policy: depth must be >= 0, got -1"),
        (["policy.depth=four"], "policy.depth must be a whole number, got 'four'"),
        (["policy.depth=2.5"], "policy.depth must be a whole number, got 2.5"),
        (["policy=batch_table", "policy.ranges=[[2,4,3]]"], "ranges must start at batch size 1"),
        (["policy=batch_table", "policy.depth=2"], "deeper than depth=2"),
        (["policy=confidence", "policy.threshold=2"], "threshold must be in [0, 1]"),
        (
            ["policy=confidence", "policy.signal=top1_probability", "drafter=synthetic"],
            "needs the signal top1_probability",
        ),
        (["drafter=none"], "the run has no drafter"),
        (["drafter.min_n=5"], "min_n=5"),
        (["verification.rate=1"], "verification has no setting 'rate'"),
        (["verification=greedy", "sampling.temperature=0.5"], "temperature"),
        (["verification=synthetic", "drafter=self"], "verification.rates"),
        (["sampling.temperature=-1"], "sampling: temperature must be >= 0 (0 is greedy), got -1"),
        (["sampling.temperature=hot"], "sampling.temperature must be a number, got 'hot'"),
        (["sampling.max_new_tokens=0"], "max_new_tokens must be >= 1"),
        (["sampling.stop=END"], "sampling.stop must be a list of texts, got 'END'"),
        (["engine.max_batch_size=0"], "engine: max_batch_size must be >= 1, got 0"),
        (["engine.numerics=exact"], "engine.numerics must be one of fast, invariant, got 'exact'"),
        (["engine.max_tokens_per_row=99999"], "engine.max_tokens_per_row must be in [2, 4096]"),
        (["engine.max_tokens_per_row=8"], "leaves no room for an answer in 8 tokens"),
        (["target=pretrained"], "target.source is missing: pass target.source=VALUE"),
        (["target=pretrained", "target.source=nowhere"], "target.source: model source 'nowhere' not found"),
        (["target.kind=magic"], "target.kind must be one of pretrained, synthetic, got 'magic'"),
        (["target.family=llma"], "did you mean 'llama'?"),
        (["target.hidden_size=33"], "hidden_size must be a multiple of 32"),
        (["workload.path=nowhere.jsonl"], "no such prompt file: 'nowhere.jsonl'"),
        (["workload.num_requests=0"], "num_requests must be >= 1"),
        (["workload.num_requests=100000"], "100000 prompts are wanted"),
        (["workload.arrivals.rate_per_s=0"], "rate_per_s must be > 0"),
        (["cost=constant"], "cost.target_s is missing"),
        (["cost=published", "cost.name=x"], "no published cost model is named 'x'"),
        (["goodput.max_ttft_s=1"], "goodput needs both"),
        (["tracker.kind=file"], "tracker.kind must be one of none, wandb"),
        (["engin.seed=1"], "the configuration has no 'engin'; did you mean 'engine'?"),
        (["+extra=1"], "the configuration has no 'extra'"),
        (["policy._target_=os.system"], "policy._target_ must name a Policy, got 'os.system'"),
        (["resume=true"], "nothing to resume in"),
        (["resume=maybe"], "resume must be true or false, got 'maybe'"),
        (["policy.depth=1,2"], "--multirun sweeps"),
        (["depth"], "cannot read 'depth': settings are KEY=VALUE"),
    ],
)
def test_run_refuses(dspark: Callable[..., Result], arguments: list[str], message: str) -> None:
    assert message in dspark("run", *SMOKE, *arguments).error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare.policies=[]"], "compare: policies must name at least one"),
        (["compare.policies=fixed"], "compare.policies must be a list of texts, got 'fixed'"),
        (["compare.policies=[fixd 0]"], "policy=fixd: no such policy; did you mean 'fixed'?"),
        (["compare.policies=[fixed -1]"], "depth must be >= 0, got -1"),
        (["compare.policies=[fixed 4,'fixed depth=4']"], "compare.policies lists the policy 'fixed 4' twice"),
        (["compare.policies=[fixed 4,fixed 4]"], "policies must not repeat an entry"),
        (["compare.policies=[fixed depth=4]"], "need quotes of their own"),
        (["compare.policies=[fixed 1 2]"], "an entry of compare.policies is"),
        (["compare.batch_sizes=[0,1]"], "batch_sizes must be >= 1"),
        (["compare.batch_sizes=4"], "compare.batch_sizes must be a list of whole numbers, got 4"),
        (["compare.repeats=0"], "repeats must be >= 1"),
        (["compare.baseline=fixd"], "policy=fixd: no such policy"),
        (["policy=fixed"], "`compare` takes policies as compare.policies=[...]"),
        (["+policy=fixed"], "`compare` takes policies as compare.policies=[...]"),
    ],
)
def test_compare_refuses(dspark: Callable[..., Result], arguments: list[str], message: str) -> None:
    assert message in dspark("compare", *SMOKE, *arguments).error


def test_an_empty_prompt_file_is_refused(dspark: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    assert "empty.jsonl: holds no prompts" in dspark("run", *SMOKE, "workload.path=empty.jsonl").error


def test_a_prompt_longer_than_the_context_is_refused(dspark: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "long.jsonl").write_text(json.dumps({"prompt": "x" * 600}) + "\n")
    arguments = ["workload.path=long.jsonl", "workload.num_requests=1", "target.max_context=512"]
    error = dspark("run", *SMOKE, *arguments).error
    assert "prompt 'long-1' has" in error
    assert "context of 512" in error


def test_a_draft_model_of_another_vocabulary_is_refused(
    dspark: Callable[..., Result], tmp_path: Path, tiny_llama: Path
) -> None:
    other = make_synthetic_target(tmp_path / "other", vocab_size=300)
    models = [
        "target=pretrained",
        f"target.source={tiny_llama}",
        "drafter=draft_model",
        f"drafter.source={other}",
    ]
    error = dspark("run", "debug=smoke", *models).error
    assert "drafter and target must share a vocabulary, got 300 and 259 entries" in error


def test_dropping_a_token_by_its_own_probability_is_refused_unless_it_is_harmless(
    dspark: Callable[..., Result],
) -> None:
    biased = ["drafter=self", "policy=confidence", "policy.stop=before", "sampling.temperature=0.8"]
    assert "class D" in dspark("run", *SMOKE, *biased).error


def test_a_damaged_model_folder_is_refused(
    dspark: Callable[..., Result], tmp_path: Path, tiny_llama: Path
) -> None:
    folder = tmp_path / "damaged"
    folder.mkdir()
    (folder / "model.safetensors").touch()
    (folder / "config.json").write_text('{"model_type": "no_such_architecture"}')
    error = dspark("run", "debug=smoke", "target=pretrained", f"target.source={folder}").error
    assert "target.source: cannot read" in error


def test_a_refused_command_leaves_earlier_results_alone(
    dspark: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "steps.jsonl").write_text("{}\n")
    assert dspark("run", *SMOKE, "policy.depth=-1").code == 2
    assert (tmp_path / "out" / "steps.jsonl").read_text() == "{}\n"


def test_a_run_folder_that_is_a_file_is_refused(dspark: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "file" in dspark("run", "debug=smoke", "hydra.run.dir=file").error


def test_a_bug_is_no_users_mistake(dspark: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **settings: object) -> None:
        raise KeyError("inside")

    monkeypatch.setattr("dspark.config.check.check_prompts", broken)
    result = dspark("run", *SMOKE)
    assert result.code == 1
    assert "Traceback" in result.err
    assert "KeyError: 'inside'" in result.err


def _processor_s(arguments: list[str], cwd: Path) -> tuple[subprocess.CompletedProcess[str], float]:
    """The finished command and the processor time it took, which a busy machine does not stretch much."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "dspark", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.parametrize(
    "arguments",
    [
        ["policy=fixd"],
        ["policy.depth=-1"],
        ["workload.path=empty.jsonl"],
        ["workload.path=long.jsonl", "workload.num_requests=1"],
    ],
)
@pytest.mark.usefixtures("smollm2_path")
def test_the_process_ends_with_code_2_within_five_seconds(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "long.jsonl").write_text(json.dumps({"prompt": "word " * 9000}) + "\n")
    done, seconds = _processor_s(["run", *arguments], tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("dspark: error: ")
    assert done.stderr.count("\n") == 1
    assert seconds < bar_s(5)
