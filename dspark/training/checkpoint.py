"""Where a training is: weights and optimizer on disk, replaced in one stroke, the last and the best.

``checkpoints/step-N`` holds ``model.safetensors`` (what is trained, in float32), ``optimizer.safetensors``
and ``state.json``. ``checkpoints.json`` names the last and the best of them, and is replaced once a new
folder is whole, so that a kill at any time leaves one to go on from. There is no random state to keep:
what is drawn follows from the seed and the step.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file

from dspark.metrics.trace import write_json

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a training is."""

    step: int  # steps done
    best_step: int | None
    best_value: float  # of the held-out number that `best` goes by; -inf before the first


START = Progress(step=0, best_step=None, best_value=float("-inf"))


class Checkpoints:
    """The checkpoints of a run's folder.

    Args:
        folder: of the run.
        model: whose trained parameters are kept.
        optimizer: over these parameters, in their order.
    """

    def __init__(self, folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.folder = folder / "checkpoints"
        self._model, self._optimizer = model, optimizer

    def save(self, progress: Progress) -> None:
        """Keep the present state as the last, and drop those that are neither last nor best."""
        name = f"step-{progress.step:07d}"
        partial = self.folder / f"{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        parameters = self._parameters()
        weights = {key: value.detach().cpu().contiguous() for key, value in parameters.items()}
        save_file(weights, partial / "model.safetensors", metadata={"format": "pt"})
        moments = {
            f"{key}/{part}": value.detach().cpu().contiguous()
            for key, parameter in parameters.items()
            for part, value in self._optimizer.state.get(parameter, {}).items()
        }
        save_file(moments, partial / "optimizer.safetensors", metadata={"format": "pt"})
        best = None if progress.best_step is None else f"step-{progress.best_step:07d}"
        kept = {
            "schema": SCHEMA,
            "step": progress.step,
            "best_step": progress.best_step,
            "best_value": None if progress.best_step is None else progress.best_value,
        }
        write_json(partial / "state.json", kept)
        final = self.folder / name
        shutil.rmtree(final, ignore_errors=True)
        os.replace(partial, final)
        write_json(self.folder / "checkpoints.json", {"schema": SCHEMA, "last": name, "best": best})
        for old in self.folder.glob("step-*"):
            if old.name not in (name, best):
                shutil.rmtree(old)

    def restore(self) -> Progress:
        """The progress of the last checkpoint, whose state is now the model's; START if there is none."""
        name = self._named("last")
        if name is None:
            return START
        state = json.loads((self.folder / name / "state.json").read_text(encoding="utf-8"))
        self.load_weights(name)
        moments = load_file(self.folder / name / "optimizer.safetensors")
        for key, parameter in self._parameters().items():
            parts = {part.rpartition("/")[2]: value for part, value in moments.items() if _owner(part) == key}
            if parts:
                self._optimizer.state[parameter] = {
                    part: value if part == "step" else value.to(parameter.device)
                    for part, value in parts.items()
                }
        has_best = state["best_step"] is not None
        return Progress(
            step=state["step"],
            best_step=state["best_step"],
            best_value=state["best_value"] if has_best else START.best_value,
        )

    def load_best(self) -> str | None:
        """The name of the best checkpoint, whose weights are now the model's; None if there is none."""
        name = self._named("best")
        if name is not None:
            self.load_weights(name)
        return name

    def load_weights(self, name: str) -> None:
        """Put the weights of a checkpoint into the model."""
        weights = load_file(self.folder / name / "model.safetensors")
        with torch.no_grad():
            for key, parameter in self._parameters().items():
                parameter.copy_(weights[key])

    def _named(self, which: str) -> str | None:
        path = self.folder / "checkpoints.json"
        return json.loads(path.read_text(encoding="utf-8"))[which] if path.is_file() else None

    def _parameters(self) -> dict[str, Tensor]:
        return {name: value for name, value in self._model.named_parameters() if value.requires_grad}


def _owner(part: str) -> str:
    return part.rpartition("/")[0]
