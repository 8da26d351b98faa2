"""A training learns, and goes on after an interruption to the same bits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator

from dspark.training.checkpoint import Checkpoints
from dspark.training.data import split_answers
from dspark.training.lessons import TargetTeacher
from dspark.training.trainer import Point, Trainer
from tests.training.lessons_tools import NO_HEADS, TRAIN, WEIGHTS, answers_of, load, trainee_of


class _KilledError(Exception):
    """Stands for a kill: nothing of the process is used afterwards."""


@pytest.fixture(scope="module")
def target(tiny_llama: Path):
    return load(tiny_llama)


@pytest.fixture(scope="module")
def answers(target):
    return [*answers_of(target, count=9), *answers_of(target, count=9, temperature=1.0)]


def _trainer(target, answers, folder: Path, settings=TRAIN, weights=WEIGHTS, **draft) -> Trainer:
    trainee = trainee_of(target, weights=weights, **draft)
    return Trainer(
        Accelerator(cpu=target.device.type == "cpu"),
        trainee.to(target.device),
        TargetTeacher(target, trainee.spec.feature_layers),
        split_answers(answers, settings),
        settings=settings,
        eos_token_ids=target.eos_token_ids,
        folder=folder,
    )


def _curve(points: list[Point]) -> dict[tuple[str, int], dict[str, float]]:
    """What must not depend on interruptions: everything but times; a later point replaces an earlier one."""
    return {(point.kind, point.step): point.values for point in points}


@pytest.mark.parametrize("stop_at", [1, 3, 5])
def test_a_killed_training_resumes_to_the_same_curve_and_weights(
    target, answers, tmp_path: Path, stop_at: int
) -> None:
    whole: list[Point] = []
    first = _trainer(target, answers, tmp_path / "whole")
    first.run(whole.append)
    assert {kind for kind, _ in _curve(whole)} == {"train", "held_out"}
    assert [step for kind, step in _curve(whole) if kind == "held_out"] == [0, 3, 6]

    cut: list[Point] = []

    def kill(point: Point) -> None:
        cut.append(point)
        if point.kind == "train" and point.step == stop_at:
            raise _KilledError

    with pytest.raises(_KilledError):
        _trainer(target, answers, tmp_path / "cut").run(kill)
    again = _trainer(target, answers, tmp_path / "cut")
    # checkpoints are after steps 2 and 4, and after 3 if it is the best so far, which the first is
    assert again.progress.step == {1: 0, 3: 2, 5: 4}[stop_at]
    again.run(cut.append)
    assert _curve(cut) == _curve(whole)
    for one, other in zip(again.trainee.parameters(), first.trainee.parameters(), strict=True):
        assert torch.equal(one, other)
    assert again.progress == first.progress


def test_another_seed_is_another_curve(target, answers, tmp_path: Path) -> None:
    curves = []
    for seed in (0, 1):
        points: list[Point] = []
        settings = replace(TRAIN, num_steps=1, seed=seed)
        _trainer(target, answers, tmp_path / str(seed), settings).run(points.append)
        curves.append(_curve(points))
    assert curves[0] != curves[1]


def test_checkpoints_keep_the_last_and_the_best_alone(target, answers, tmp_path: Path) -> None:
    trainer = _trainer(target, answers, tmp_path)
    trainer.run(lambda point: None)
    named = json.loads((tmp_path / "checkpoints" / "checkpoints.json").read_text())
    there = {path.name for path in (tmp_path / "checkpoints").glob("step-*")}
    assert there == {named["last"], named["best"]}
    assert named["last"] == "step-0000006"
    assert named["best"] == f"step-{trainer.progress.best_step:07d}"


def test_a_torn_checkpoint_is_ignored(target, answers, tmp_path: Path) -> None:
    trainer = _trainer(target, answers, tmp_path)
    trainer.run(lambda point: None)
    (tmp_path / "checkpoints" / "step-0000099.partial").mkdir()
    assert _trainer(target, answers, tmp_path).progress == trainer.progress


def test_the_best_weights_come_back(target, answers, tmp_path: Path) -> None:
    trainer = _trainer(target, answers, tmp_path)
    trainer.run(lambda point: None)
    kept = {name: value.clone() for name, value in trainer.trainee.drafter.state_dict().items()}
    with torch.no_grad():
        for parameter in trainer.trainee.parameters():
            if parameter.requires_grad:
                parameter.zero_()
    name = trainer.checkpoints.load_best()
    assert name is not None
    if name == "step-0000006":
        after = trainer.trainee.drafter.state_dict()
        assert all(torch.equal(after[key], value) for key, value in kept.items())
    assert (
        Checkpoints(tmp_path / "nowhere", trainer.trainee, torch.optim.SGD([torch.zeros(1)])).load_best()
        is None
    )


@pytest.mark.parametrize(
    ("weights", "draft"),
    [
        (WEIGHTS, {}),
        (replace(WEIGHTS, confidence=0.0), {"kind": "dflash", **NO_HEADS}),
        (
            replace(WEIGHTS, ce=0.0, tv=0.0, soft_ce=1.0, confidence=0.0, decay=4.48),
            {"kind": "eagle3", "mask_token_id": None, **NO_HEADS},
        ),
    ],
    ids=["dspark", "dflash", "eagle3"],
)
def test_every_kind_learns(target, answers, tmp_path: Path, weights, draft) -> None:
    points: list[Point] = []
    settings = replace(TRAIN, num_steps=30, eval_every=30, learning_rate=4e-3)
    _trainer(target, answers, tmp_path, settings, weights, **draft).run(points.append)
    first, last = (point.values for point in points if point.kind == "held_out")
    assert last["loss"] < first["loss"]
    assert last["expected_tau"] > first["expected_tau"] + 0.02


def test_a_step_smaller_than_the_processes_is_refused(target, answers, tmp_path: Path) -> None:
    class Pair:
        num_processes = 2

    trainee = trainee_of(target)
    with pytest.raises(ValueError, match="must give each of the 2 processes an answer, got 1"):
        Trainer(
            Pair(),  # type: ignore[arg-type]
            trainee,
            TargetTeacher(target, trainee.spec.feature_layers),
            split_answers(answers, TRAIN),
            settings=replace(TRAIN, batch_size=1),
            eos_token_ids=(),
            folder=tmp_path,
        )
