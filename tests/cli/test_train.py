"""`dspark train`: what it leaves, how it goes on after a kill, and what it refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file

from dspark.drafters.formats import load_drafter_folder
from dspark.models.target import load_target
from tests.cli.conftest import Result, read_json, read_lines

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK = [
    "target=synthetic",
    "tracker=none",
    "prompts.sources=[{name: builtin, path: null, max_prompt_chars: 110}]",
    "answers.folder=answers",
    "answers.temperatures=[0.0]",
    "answers.max_new_tokens=8",
    "draft.num_layers=1",
    "draft.feature_layers=[-1,0]",
    "draft.block_size=3",
    "draft.vocab_size=100",
    "draft.mask_token_id=0",
    "draft.markov_rank=4",
    "train.num_steps=4",
    "train.batch_size=2",
    "train.num_eval_answers=3",
    "train.held_out_share=0.3",
    "train.eval_every=2",
    "train.checkpoint_every=1",
    "hydra.run.dir=out",
]
NO_HEADS = ["draft.markov_rank=0", "draft.confidence_head=false", "draft.confidence_with_markov=false"]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure, which takes longer than the training."""
    monkeypatch.setattr("dspark.cli.train_run.draw_training", lambda lines, path, title: path)


def _curve(folder: Path) -> list[dict]:
    """The lines of a training's curves without times."""
    lines = read_lines(folder / "curves.jsonl")
    return [{key: value for key, value in line.items() if not key.endswith("_s")} for line in lines]


def test_a_training_leaves_answers_curves_and_a_drafter(
    dspark: Callable[..., Result], tmp_path: Path
) -> None:
    result = dspark("train", *QUICK)
    assert result.code == 0, result.err
    out = tmp_path / "out"
    answers = read_lines(tmp_path / "answers" / "answers.jsonl")
    assert all(1 <= len(answer["token_ids"]) <= 8 for answer in answers)
    assert f"answers: {len(answers)} of {len(answers)}, " in result.err
    assert [(line["kind"], line["step"]) for line in _curve(out)] == [
        ("held_out", 0),
        ("train", 1),
        ("train", 2),
        ("held_out", 2),
        ("train", 3),
        ("train", 4),
        ("held_out", 4),
    ]
    summary = read_json(out / "summary.json")
    (row,) = summary["rows"]
    assert summary["complete"]
    best = max(
        (line for line in _curve(out)[1:] if line["kind"] == "held_out"), key=lambda x: x["expected_tau"]
    )
    assert (row["best_step"], row["expected_tau"]) == (best["step"], best["expected_tau"])
    assert f"held out expected_tau: {_curve(out)[0]['expected_tau']:.3f} -> " in result.out
    # features 2 x 64 x 64; norms 4 x 64; a layer of 4 heads and 2 of 24 numbers: 64 x (96 + 48 + 48 + 96)
    # + 3 x 64 x 128; Markov (259 + 100) x 4; confidence 64 + 4 + 1
    layer = 64 * (96 + 48 + 48 + 96) + 3 * 64 * 128
    assert row["num_trained_parameters"] == 2 * 64 * 64 + 4 * 64 + layer + (259 + 100) * 4 + 69
    assert (out / "figures" / "training.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.usefixtures("undrawn")
def test_the_drafter_is_one_that_can_be_loaded(dspark: Callable[..., Result], tmp_path: Path) -> None:
    models = tmp_path / "models"  # of its own: the shared cache has targets of other tests
    assert dspark("train", *QUICK, f"target.cache_dir={models}").code == 0
    (target_folder,) = models.glob("synthetic/llama-*")
    target = load_target(target_folder, device="cpu")
    model = load_drafter_folder(tmp_path / "out" / "drafter", target)
    spec = model.spec
    assert (spec.kind, spec.block_size, spec.feature_layers) == ("dspark", 3, (-1, 0))
    assert (spec.draft_vocab_size, spec.markov_rank, spec.mask_token_id) == (100, 4, 0)
    # the output head was not trained: it is the target's rows, and takes no room in the file
    stored = load_file(tmp_path / "out" / "drafter" / "model.safetensors")
    assert "lm_head.weight" not in stored
    assert torch.equal(model.lm_head.weight, target.model.lm_head.weight[model.target_ids(torch.arange(100))])
    last = read_json(tmp_path / "out" / "checkpoints" / "checkpoints.json")["best"]
    trained = load_file(tmp_path / "out" / "checkpoints" / last / "model.safetensors")
    for name, weight in trained.items():
        assert torch.equal(model.state_dict()[name], weight.bfloat16().float()), name


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "arguments",
    [
        ["draft.kind=dflash", *NO_HEADS, "loss.confidence=0"],
        ["draft.kind=eagle3", *NO_HEADS, "loss.confidence=0", "loss.soft_ce=1"],
        ["draft.vocab_size=null", "layout=deepspec", "draft.qk_norm=true", "train.cache_features=false"],
        ["draft.initial_layers=[1]", "draft.train_head=true", "draft.markov_head_type=rnn"],
    ],
    ids=["dflash", "eagle3", "deepspec", "from-the-target"],
)
def test_kinds_and_layouts(dspark: Callable[..., Result], tmp_path: Path, arguments: list[str]) -> None:
    result = dspark("train", *QUICK, "train.num_steps=2", *arguments)
    assert result.code == 0, result.err
    assert (tmp_path / "out" / "drafter" / "model.safetensors").is_file()


@pytest.mark.usefixtures("undrawn")
def test_a_trained_drafter_is_trained_further(dspark: Callable[..., Result], tmp_path: Path) -> None:
    models = f"target.cache_dir={tmp_path / 'models'}"
    assert dspark("train", *QUICK, models).code == 0
    (tmp_path / "out").rename(tmp_path / "first")
    start = f"draft.start_from={tmp_path / 'first' / 'drafter'}"
    assert dspark("train", *QUICK, models, start, "stage=train").code == 0
    stopped = [line for line in _curve(tmp_path / "first") if line["kind"] == "held_out"]
    best = max(stopped[1:], key=lambda line: line["expected_tau"])
    went_on = _curve(tmp_path / "out")[0]
    assert (went_on["kind"], went_on["step"]) == ("held_out", 0)
    # it is where the first one ended, but for the rounding to bfloat16
    assert went_on["loss"] == pytest.approx(best["loss"], abs=2e-3)
    assert went_on["loss"] != pytest.approx(stopped[0]["loss"], abs=4e-3)
    (tmp_path / "out").rename(tmp_path / "second")
    assert dspark("train", *QUICK, models, start, "stage=train", "draft.vocab_size=120").code == 0
    (row,) = read_json(tmp_path / "out" / "summary.json")["rows"]
    assert (row["draft_vocab_size"], row["vocabulary_covers"]) == (120, 1.0)  # and so more than the first one
    (tmp_path / "out").rename(tmp_path / "third")
    missing = dspark("train", *QUICK, models, "draft.start_from=nowhere")
    assert (missing.code, "draft.start_from 'nowhere' is no folder" in missing.err) == (2, True)
    refused = dspark("train", *QUICK, models, start, "stage=train", "draft.markov_rank=8")
    assert refused.code == 2
    assert "has markov_rank 4, and the settings ask for 8" in refused.err


@pytest.mark.usefixtures("undrawn")
def test_stages_one_after_the_other(dspark: Callable[..., Result], tmp_path: Path) -> None:
    missing = dspark("train", *QUICK, "stage=train")
    assert missing.error == "no answers in answers: run the stage `answers` first, or stage=all"
    assert dspark("train", *QUICK, "stage=answers").code == 0
    assert not (tmp_path / "out" / "curves.jsonl").exists()
    lines = read_lines(tmp_path / "answers" / "answers.jsonl")
    (row,) = read_json(tmp_path / "out" / "summary.json")["rows"]
    assert (row["num_answers"], row["new_answers"]) == (len(lines), len(lines))
    assert row["answer_tokens"] == sum(len(line["token_ids"]) for line in lines)
    result = dspark("train", *QUICK, "stage=train")
    assert result.code == 0, result.err
    assert "answers:" not in result.err


@pytest.mark.usefixtures("undrawn")
def test_a_finished_training_that_is_resumed_changes_nothing(
    dspark: Callable[..., Result], tmp_path: Path
) -> None:
    assert dspark("train", *QUICK).code == 0
    before = _curve(tmp_path / "out")
    again = dspark("train", *QUICK, "resume=true")
    assert again.code == 0, again.err
    assert _curve(tmp_path / "out") == before
    other = dspark("train", *QUICK, "resume=true", "train.learning_rate=1")
    assert "had train.learning_rate=0.0006, and resume=true got 1" in other.error
    # answers that came later are not part of the run, and a run without them cannot go on
    lines = (tmp_path / "answers" / "answers.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "answers" / "answers.jsonl").write_text("".join(reversed(lines)))
    changed = dspark("train", *QUICK, "stage=all", "resume=true")
    assert "are not those that the run in" in " ".join(changed.err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["draft.kind=dflash"], "draft: a dflash drafter has no heads, got markov_rank 4"),
        (["draft.kind=eagle3", "draft.num_layers=2"], "draft: an eagle3 drafter has 1 layer and no heads"),
        (["draft.mask_token_id=null"], "draft: a dspark drafter needs mask_token_id"),
        (["draft.mask_token_id=259"], "draft: mask_token_id must be in [0, 258], the vocabulary, got 259"),
        (["draft.feature_layers=[0,1]"], "must lie below the target's last layer, 1"),
        (["draft.feature_layers=[0,0]"], "feature_layers must be different ones"),
        (["draft.initial_layers=[0,1]"], "must name one layer of the target for each of the 1 layers"),
        (["draft.initial_layers=[2]"], "draft.initial_layers must be layers of the target, 0 to 1, got 2"),
        (["draft.vocab_size=260"], "draft_vocab_size must be at most vocab_size, 259, got 260"),
        (["draft.vocab_size=null", "draft.train_head=true"], "train_head=true needs a reduced vocabulary"),
        (["layout=deepspec"], "layout=deepspec has no map for a reduced vocabulary"),
        (["loss.confidence=0"], "draft.confidence_head=true needs loss.confidence > 0"),
        (["draft.confidence_head=false"], "loss.confidence=1.0 trains a head that the drafter lacks"),
        (["loss.ce=0", "loss.tv=0"], "loss: ce, soft_ce or tv must be > 0"),
        (["train.num_steps=0"], "train: num_steps must be >= 1, got 0"),
        (["train.held_out_share=1"], "train: held_out_share must be in (0, 1), got 1.0"),
        (["train.precision=fp8"], "train.precision must be one of auto, float32, bfloat16, got 'fp8'"),
        (["answers.temperatures=[]"], "answers: temperatures must list at least one"),
        (["prompts.sources=[]"], "prompts.sources must name at least one source"),
        (["prompts.sources=[{name: a, path: humaneval.jsonl}]"], "is held out for evaluation"),
        (["prompts.sources=[{name: a, path: nothing.jsonl}]"], "prompts.sources: a: no such prompt file"),
        (["prompts.folder=nowhere"], "prompts.folder 'nowhere' does not exist"),
        (["train.steps=5"], "train has no setting 'steps'"),
        (["stage=evaluate"], "stage must be one of all, answers, train, got 'evaluate'"),
        (["debug=smoke"], "the configuration has no 'debug'"),
        (["stage=train", "resume=true"], "nothing to resume in"),
    ],
)
def test_train_refuses(
    dspark: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    def refuse(*arguments: object, **settings: object) -> None:
        raise AssertionError("a model was loaded before the command was refused")

    monkeypatch.setattr("dspark.models.target.load_target", refuse)
    assert message in dspark("train", *QUICK, *arguments).error


@pytest.mark.slow
def test_a_training_killed_at_any_time_resumes_to_the_same_curve(
    dspark: Callable[..., Result], tmp_path: Path, model_cache: Path
) -> None:
    settings = [*QUICK, "train.num_steps=40", "train.checkpoint_every=5", "train.eval_every=10"]
    assert dspark("train", *settings).code == 0
    whole = _curve(tmp_path / "out")
    cut = [word.replace("dir=out", "dir=cut") for word in settings]
    command = [sys.executable, "-m", "dspark", "train", *cut]
    environment = {**os.environ, "DSPARK_CACHE": str(model_cache), "OMP_NUM_THREADS": "1"}
    for wanted in (7, 23):
        resume = ["resume=true"] if wanted > 7 else []
        process = subprocess.Popen(
            [*command, *resume], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 200
        while _last_step(tmp_path / "cut") < wanted:
            assert process.poll() is None, "it ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert dspark("train", *cut, "resume=true").code == 0
    assert _curve(tmp_path / "cut") == whole


@pytest.mark.slow
def test_two_processes_train_like_one(
    dspark: Callable[..., Result], tmp_path: Path, model_cache: Path
) -> None:
    # 3 answers a step: two of the first process, one of the second
    settings = [*QUICK, "train.batch_size=3", "train.num_steps=6"]
    assert dspark("train", *settings).code == 0
    two = [word.replace("dir=out", "dir=two") for word in settings]
    launch = ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2", "--num_machines", "1"]
    launch += ["--mixed_precision", "no", "--num_cpu_threads_per_process", "1", "--main_process_port", "0"]
    done = subprocess.run(
        [sys.executable, *launch, "-m", "dspark", "train", *two, "stage=train"],
        cwd=tmp_path,
        env={**os.environ, "DSPARK_CACHE": str(model_cache)},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    one, other = _curve(tmp_path / "out"), _curve(tmp_path / "two")
    assert len(one) == len(other)
    for line, again in zip(one, other, strict=True):
        assert line.pop("kind") == again.pop("kind")
        assert line == pytest.approx(again, rel=1e-3, abs=1e-4)


def _last_step(folder: Path) -> int:
    path = folder / "curves.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return len([line for line in lines if '"kind":"train"' in line])


@pytest.mark.slow
def test_the_smoke_experiment_learns(dspark: Callable[..., Result], tmp_path: Path) -> None:
    started_s = time.monotonic()
    result = dspark("train", "experiment=smoke", "answers.folder=answers", "hydra.run.dir=out")
    assert result.code == 0, result.err
    assert time.monotonic() - started_s < 180
    held_out = [line for line in _curve(tmp_path / "out") if line["kind"] == "held_out"]
    assert held_out[-1]["expected_tau"] > held_out[0]["expected_tau"] + 0.1
    assert held_out[-1]["predicted_tau"] > held_out[0]["predicted_tau"]
