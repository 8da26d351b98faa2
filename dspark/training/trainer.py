"""The training loop: a step's answers, blocks, losses and update, on one device or several.

Everything that is drawn follows from the seed and the number of the step, and checkpoints hold the rest,
so a training that was killed and resumed has the loss curve of one that was not, to the last bit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch

from dspark.training.anchors import draw_anchors
from dspark.training.batches import Batch, make_batch
from dspark.training.checkpoint import Checkpoints
from dspark.training.curves import numbers
from dspark.training.evaluation import evaluate
from dspark.training.losses import LossSums
from dspark.training.schedule import generator_of, items_of_step, learning_rate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from accelerate import Accelerator

    from dspark.training.data import Split
    from dspark.training.lessons import Teacher
    from dspark.training.settings import TrainSettings
    from dspark.training.trainee import Trainee

BEST_BY = "expected_tau"
"""The held-out number that the best checkpoint is chosen by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What is told after a step, or after an evaluation."""

    kind: str  # "train" or "held_out"
    step: int  # steps done
    values: dict[str, float]  # the same in every run of these settings
    times: dict[str, float]  # seconds and rates

    def as_line(self) -> dict[str, Any]:
        """A line of ``curves.jsonl``."""
        return {"kind": self.kind, "step": self.step, **self.values, **self.times}


class Trainer:
    """Trains a drafter.

    Args:
        accelerator: of the process; gives devices and precision.
        trainee: on the accelerator's device.
        teacher: gives lessons.
        split: answers by their use.
        settings: how long, how fast.
        eos_token_ids: of the target.
        folder: of the run.

    Raises:
        ValueError: more processes than answers in a step.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        trainee: Trainee,
        teacher: Teacher,
        split: Split,
        *,
        settings: TrainSettings,
        eos_token_ids: tuple[int, ...],
        folder: Path,
    ) -> None:
        if settings.batch_size < accelerator.num_processes:
            raise ValueError(
                f"train.batch_size must give each of the {accelerator.num_processes} processes an answer, "
                f"got {settings.batch_size}"
            )
        self.accelerator, self.trainee, self.teacher, self.split = accelerator, trainee, teacher, split
        self.settings, self.eos_token_ids = settings, eos_token_ids
        trained = [parameter for parameter in trainee.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(
            trained,
            lr=settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
        )
        self._trained = trained
        self.checkpoints = Checkpoints(folder, trainee.drafter, optimizer)
        self.progress = self.checkpoints.restore()
        self._optimizer = optimizer
        self._model = accelerator.prepare_model(trainee)

    def run(self, on_point: Callable[[Point], None]) -> None:
        """Train from where the last checkpoint is to the end; ``on_point`` is told how it goes."""
        settings = self.settings
        if self.progress.step == 0:
            self._evaluate(on_point)
        while self.progress.step < settings.num_steps:
            started_s = time.monotonic()
            sums, gradient_norm = self._step(self.progress.step)
            values = numbers(sums, self.trainee.weights)
            values["learning_rate"] = learning_rate(self.progress.step, settings)
            values["gradient_norm"] = gradient_norm
            step_s = time.monotonic() - started_s
            self.progress = replace(self.progress, step=self.progress.step + 1)
            times = {"step_s": step_s, "tokens_per_s": float(sums.count.sum()) / step_s}
            on_point(Point(kind="train", step=self.progress.step, values=values, times=times))
            is_last = self.progress.step == settings.num_steps
            is_best = False
            if is_last or self.progress.step % settings.eval_every == 0:
                is_best = self._evaluate(on_point)
            if is_last or is_best or self.progress.step % settings.checkpoint_every == 0:
                self._save()

    def _batch(self, step: int) -> Batch:
        """This process's share of a step's answers, with blocks drawn in them."""
        settings = self.settings
        items = items_of_step(
            step, num_items=len(self.split.training), batch_size=settings.batch_size, seed=settings.seed
        )
        world, rank = self.accelerator.num_processes, self.accelerator.process_index
        places = range(len(items))[rank::world]
        lessons = self.teacher.lessons([self.split.training[items[place]] for place in places])
        anchors = [
            draw_anchors(
                lesson.num_prompt,
                len(lesson.features),
                settings.num_anchors,
                generator_of(settings.seed, 1, step, place),
            )
            for place, lesson in zip(places, lessons, strict=True)
        ]
        return make_batch(lessons, anchors, self.trainee.spec.block_size).to(self.accelerator.device)

    def _step(self, step: int) -> tuple[LossSums, float]:
        """One update; the sums of all processes, and the gradient's norm before it was clipped.

        Raises:
            ValueError: the loss is not finite.
        """
        batch = self._batch(step)
        sums: LossSums = self._model(batch)
        weight_sum = self._reduced(sums.weight)
        # gradients are averaged over processes, and the loss is a sum over them
        if not bool(sums.loss.isfinite()):
            raise ValueError(
                f"the loss must be finite, got {float(sums.loss)} at step {step + 1}: lower "
                "train.learning_rate, or set train.precision=float32"
            )
        self.accelerator.backward(sums.loss * self.accelerator.num_processes / weight_sum)
        norm = torch.nn.utils.clip_grad_norm_(self._trained, self.settings.clip)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(step, self.settings)
        self._optimizer.step()
        self._optimizer.zero_grad()
        values = {item.name: self._reduced(getattr(sums, item.name).detach()) for item in fields(LossSums)}
        return LossSums(**values), float(norm)

    def _reduced(self, value: torch.Tensor) -> torch.Tensor:
        """The sum over processes."""
        reduced = self.accelerator.reduce(value.detach().clone(), "sum")
        assert isinstance(reduced, torch.Tensor)
        return reduced

    def _evaluate(self, on_point: Callable[[Point], None]) -> bool:
        """True where this is the best so far; the main process evaluates, the others wait for its word."""
        started_s = time.monotonic()
        word = torch.zeros(1, device=self.accelerator.device)
        values: dict[str, float] = {}
        if self.accelerator.is_main_process:
            values = evaluate(
                self.trainee,
                self.teacher,
                self.split.held_out,
                eos_token_ids=self.eos_token_ids,
                device=self.accelerator.device,
            )
            word += values[BEST_BY]
        value = float(self._reduced(word))
        if values:
            times = {"evaluation_s": time.monotonic() - started_s}
            on_point(Point(kind="held_out", step=self.progress.step, values=values, times=times))
        is_best = self.progress.step > 0 and value > self.progress.best_value
        if is_best:
            self.progress = replace(self.progress, best_step=self.progress.step, best_value=value)
        return is_best

    def _save(self) -> None:
        if self.accelerator.is_main_process:
            self.checkpoints.save(self.progress)
        self.accelerator.wait_for_everyone()
