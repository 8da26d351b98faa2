"""The first stage of `dspark train`: the target's answers, with a bar and their tokens a second."""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING

from dspark.cli.train_progress import TrainProgress
from dspark.models.sources import default_cache_dir
from dspark.training.answers import Answer, encoded_prompts, generate_answers, read_answers, wanted_answers
from dspark.training.build import draft_spec
from dspark.training.claim import claimed
from dspark.training.lesson_store import StoredTeacher
from dspark.training.lessons import TargetTeacher
from dspark.training.listening import ListeningTarget
from dspark.training.sources import training_prompts

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from dspark.config.train import TrainCommand
    from dspark.models.target import HFTarget


def answers_folder(config: TrainCommand, target: HFTarget) -> Path:
    """Where the answers lie."""
    if config.answers.folder is not None:
        return config.answers.folder.expanduser()
    name = re.sub(r"\W+", "-", target.name).strip("-").lower()
    return default_cache_dir() / "training" / name


def write_answers(config: TrainCommand, target: HFTarget, folder: Path, console: Console) -> dict[str, float]:
    """Generate what the folder lacks; told on stderr, by a bar or once a minute. Returns a summary row.

    Where features are kept on disk, a target on a CPU writes the drafter's lessons along with the answers.

    Raises:
        ValueError: see :func:`~dspark.training.answers.generate_answers`; another process writes there.
    """
    with claimed(folder), contextlib.ExitStack() as stack:
        return _write(config, target, folder, console, stack)


def _write(
    config: TrainCommand, target: HFTarget, folder: Path, console: Console, stack: contextlib.ExitStack
) -> dict[str, float]:
    settings = config.answers.settings
    found = training_prompts(config.prompts.sources, config.prompts.folder)
    prompts = encoded_prompts(target, found, settings)
    names = {name for name, _, _ in wanted_answers(prompts, settings)}
    num_done = sum(answer.id in names for answer in read_answers(folder))
    started_s = time.monotonic()
    progress = TrainProgress(console, what="answers", total=len(names), done=num_done)
    store = None
    if config.train.cache_features and target.device.type == "cpu":  # elsewhere a second pass costs little
        spec = draft_spec(config.draft, target.model.config.get_text_config(), target_name=target.name)
        teacher = TargetTeacher(target, spec.feature_layers)
        store = StoredTeacher(teacher, folder, spec.feature_layers)
        stack.enter_context(claimed(store.folder))
        target = ListeningTarget(teacher)

    def on_answer(answer: Answer) -> None:
        if store is not None and isinstance(target, ListeningTarget):
            store.keep(target.lesson(answer))
        progress.advance(len(answer.token_ids))

    with progress.shown():
        generate_answers(target, prompts, settings, folder, on_answer)
    progress.say()
    kept = read_answers(folder)
    return {
        "num_prompts": len(prompts),
        "num_answers": len(kept),
        "answer_tokens": sum(len(answer.token_ids) for answer in kept),
        "prompt_tokens": sum(len(answer.prompt_ids) for answer in kept),
        "new_answers": len(names) - num_done,
        "wall_s": time.monotonic() - started_s,
    }
