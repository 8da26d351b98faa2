"""The second stage of `dspark train`: data, drafter, training, and what is left in the run's folder.

Files: ``provenance.json``, ``data.json`` (which answers), ``curves.jsonl`` (a point a line),
``checkpoints/``, ``drafter/`` (the best checkpoint as a folder that a drafter is loaded from),
``summary.json``, ``figures/training.png``.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from dspark.analysis.training_figure import draw_training
from dspark.cli.console import stderr, stdout
from dspark.cli.launch import EXIT_BUG, EXIT_INTERRUPTED
from dspark.cli.provenance import command_line, provenance
from dspark.cli.rundir import claim_folder
from dspark.cli.session import build_tracker, resume_command
from dspark.cli.train_progress import TrainProgress
from dspark.drafters.formats import save_drafter_folder
from dspark.metrics.summary import SUMMARY_SCHEMA
from dspark.metrics.trace import JsonlWriter, drop_torn_line, keep_lines, read_jsonl, write_json
from dspark.metrics.tracker import NoTracker
from dspark.training.answers import check_answers
from dspark.training.build import continued_drafter, draft_spec, new_drafter, num_trained
from dspark.training.claim import claimed
from dspark.training.data import Split, answers_of_run, split_answers
from dspark.training.lesson_store import StoredTeacher
from dspark.training.lessons import TargetTeacher
from dspark.training.trainee import Trainee
from dspark.training.trainer import Point, Trainer
from dspark.training.vocabulary import covered_share, draft_vocabulary

if TYPE_CHECKING:
    from pathlib import Path

    from accelerate import Accelerator

    from dspark.cli.launch import Invocation
    from dspark.config.train import TrainCommand
    from dspark.drafters.spec import DraftSpec
    from dspark.metrics.tracker import Tracker
    from dspark.models.target import HFTarget
    from dspark.training.answers import Answer
    from dspark.training.lessons import Teacher
    from dspark.training.trainee import DraftModule


def train_drafter(
    invocation: Invocation,
    config: TrainCommand,
    target: HFTarget,
    answers_folder: Path,
    accelerator: Accelerator,
) -> None:
    """Train to the end, from the last checkpoint where the run is resumed.

    Raises:
        ValueError: no answers, another target's, too few, or a drafter that does not fit the target.
    """
    check_answers(answers_folder, target)
    folder = _shared_folder(invocation.run_dir, accelerator)
    with claimed(folder) if accelerator.is_main_process else contextlib.nullcontext():
        _train(invocation, config, target, answers_folder, accelerator, folder)


def _train(
    invocation: Invocation,
    config: TrainCommand,
    target: HFTarget,
    answers_folder: Path,
    accelerator: Accelerator,
    folder: Path,
) -> None:
    is_main = accelerator.is_main_process
    origin = provenance(invocation, device=target.device, num_threads=torch.get_num_threads())
    if is_main:
        claim_folder(folder, origin, resume=config.resume)
        answers_of_run(answers_folder, folder)  # writes down which they are
    accelerator.wait_for_everyone()
    answers = answers_of_run(answers_folder, folder)
    split = split_answers(answers, config.train)
    data = _build(config, target, answers_folder, split, accelerator)
    tracker: Tracker = NoTracker()
    if is_main:
        tracker = build_tracker(config.tracker, folder, {**invocation.plain, "provenance": origin})
    exit_code = EXIT_BUG
    try:
        trainer = Trainer(
            accelerator,
            data.trainee,
            data.teacher,
            split,
            settings=config.train,
            eos_token_ids=target.eos_token_ids,
            folder=folder,
        )
        _run(trainer, folder, tracker, is_main=is_main)
        if is_main:
            _finish(invocation, config, folder, trainer, data)
        exit_code = 0
    except KeyboardInterrupt:
        exit_code = EXIT_INTERRUPTED
        print(f"\ndspark: interrupted; go on with: {resume_command(invocation)}", file=sys.stderr)
        raise
    finally:
        tracker.close(exit_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data:
    """What a training is made of."""

    trainee: Trainee
    teacher: Teacher
    facts: dict[str, Any]  # for the summary


def _build(
    config: TrainCommand, target: HFTarget, folder: Path, split: Split, accelerator: Accelerator
) -> _Data:
    text_config = target.model.config.get_text_config()
    spec = draft_spec(config.draft, text_config, target_name=target.name)
    drafter = _drafter(config, spec, target, split)
    ids = drafter.target_ids(torch.arange(spec.draft_vocab_size, device=target.device))
    direct = TargetTeacher(target, spec.feature_layers)
    teacher: Teacher = direct
    if config.train.cache_features:
        teacher = StoredTeacher(direct, folder, spec.feature_layers)
        if accelerator.is_main_process:
            _fill(teacher, [*split.held_out, *split.training])
        accelerator.wait_for_everyone()
    facts = {
        "kind": spec.kind,
        "num_trained_parameters": num_trained(drafter),
        "feature_layers": list(spec.feature_layers),
        "draft_vocab_size": spec.draft_vocab_size,
        "vocabulary_covers": covered_share(ids, split.training),
        "num_training_answers": len(split.training),
        "num_training_tokens": sum(len(answer.token_ids) for answer in split.training),
        "num_held_out_answers": len(split.held_out),
    }
    trainee = Trainee(drafter, direct.head, config.loss).to(accelerator.device)
    return _Data(trainee=trainee, teacher=teacher, facts=facts)


def _drafter(config: TrainCommand, spec: DraftSpec, target: HFTarget, split: Split) -> DraftModule:
    vocabulary = None
    if spec.has_reduced_vocab:
        vocabulary = draft_vocabulary(
            split.training,
            spec.draft_vocab_size,
            vocab_size=target.vocab_size,
            always=target.eos_token_ids,
        )
    if config.draft.start_from is not None:
        folder = config.draft.start_from.expanduser()
        return continued_drafter(spec, config.draft, folder, target, vocabulary)
    return new_drafter(spec, config.draft, target, vocabulary, config.train.seed)


def _fill(teacher: StoredTeacher, answers: list[Answer]) -> None:
    progress = TrainProgress(stderr(), what="lessons", total=len(answers))
    with progress.shown():
        teacher.fill(answers, lambda tokens: progress.advance(tokens))
    progress.say()


def _run(trainer: Trainer, folder: Path, tracker: Tracker, *, is_main: bool) -> None:
    """Train; points go to the file, the tracker and the console."""
    path = folder / "curves.jsonl"
    if not is_main:
        trainer.run(lambda point: None)
        return
    drop_torn_line(path)
    done = trainer.progress.step
    keep_lines(path, lambda line: done > 0 and line["step"] <= done)
    progress = TrainProgress(stderr(), what="steps", total=trainer.settings.num_steps, done=done)
    with progress.shown(), JsonlWriter(path) as writer:

        def on_point(point: Point) -> None:
            writer.write(point.as_line())
            named = {f"{point.kind}/{name}": value for name, value in (point.values | point.times).items()}
            tracker.point({"step": point.step, **named})
            progress.point(point)

        trainer.run(on_point)


def _finish(
    invocation: Invocation, config: TrainCommand, folder: Path, trainer: Trainer, data: _Data
) -> None:
    """The drafter's folder, the summary, the figure, and a few lines about them."""
    best = trainer.checkpoints.load_best()
    assert best is not None, "a training ends with an evaluation"
    drafter = trainer.trainee.drafter
    save_drafter_folder(
        drafter,
        folder / "drafter",
        layout=config.layout,
        with_tables=False,
        with_head=config.draft.train_head,
    )
    lines = list(read_jsonl(folder / "curves.jsonl"))
    held_out = [line for line in lines if line["kind"] == "held_out"]
    best_line = next(line for line in held_out if line["step"] == trainer.progress.best_step)
    told = {key: value for key, value in best_line.items() if not key.endswith("_s")}
    row = {**data.facts, "num_steps": trainer.progress.step, "best_step": trainer.progress.best_step, **told}
    write_json(
        folder / "summary.json",
        {
            "schema": SUMMARY_SCHEMA,
            "command": command_line(invocation),
            "complete": True,
            "rows": [row],
        },
    )
    title = (
        f"{data.facts['kind']} for {config_target(config)}: {data.facts['num_trained_parameters']} parameters"
    )
    figure = draw_training(lines, folder / "figures" / "training.png", title=title)
    first = held_out[0]
    console = stdout()
    for name in ("loss", "expected_tau", "predicted_tau"):
        if name in best_line:
            change = f"{first[name]:.3f} -> {best_line[name]:.3f}"
            console.print(f"held out {name}: {change} at step {best_line['step']}", markup=False)
    console.print(f"drafter: {folder / 'drafter'}\nfigure: {figure}", markup=False, soft_wrap=True)


def config_target(config: TrainCommand) -> str:
    """The target's name in titles."""
    return getattr(config.target, "source", None) or config.target.kind


def _shared_folder(path: Path, accelerator: Accelerator) -> Path:
    """The first process's folder: times in its name may differ by a second between processes."""
    if accelerator.num_processes == 1:
        return path
    from accelerate.utils import broadcast_object_list

    return broadcast_object_list([path])[0]
