"""Mirrors of a run elsewhere: nothing, or Weights & Biases, behind one small class.

The JSON files are the record; a tracker repeats them. It is handed each step after the step's time
has been taken, and keeps it until ``flush``, so that sending costs the measured seconds nothing.
"""

from __future__ import annotations

import logging
import re
import uuid
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

from dspark.metrics.time_fields import named_by_clock, one_clock, time_field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dspark.types import StepRecord

logger = logging.getLogger(__name__)

Mode = Literal["online", "offline"]

_INIT_TIMEOUT_S = {"online": 10, "offline": 60}  # offline only waits for a busy machine
_NOT_A_NAME = re.compile(r"[^\w./-]+")
_TABLE = ("policy", "drafter", "verification", "batch_size", "workload", "numerics", "num_requests")
_NUMBERS = (
    "output_tokens",
    "wall_s",
    "tokens_per_s",
    "decode_tokens_per_s",
    "ratio_to_plain",
    "acceptance_length",
    "acceptance_rate",
    "drafted_tokens",
    "verified_tokens",
    "accepted_tokens",
    "target_passes",
)


class Tracker(ABC):
    """Abstract; what a run tells about itself while it goes and when it ends."""

    @abstractmethod
    def step(self, group: str, step: StepRecord) -> None:
        """Note a step; ``group`` names the part of the run it belongs to, empty for all of it."""

    @abstractmethod
    def point(self, numbers: Mapping[str, float]) -> None:
        """Send a point of curves, by metric name; of a training, which takes no measured step."""

    @abstractmethod
    def flush(self) -> None:
        """Send what was noted; called between measurements."""

    @abstractmethod
    def summarise(self, rows: Mapping[str, Mapping[str, Any]], figures: Sequence[Path]) -> None:
        """Send the summary rows, by group, and the figures."""

    @abstractmethod
    def close(self, exit_code: int) -> None:
        """End the run; 0 is success."""


class NoTracker(Tracker):
    """Mirrors nothing."""

    def step(self, group: str, step: StepRecord) -> None:
        """Nothing."""

    def point(self, numbers: Mapping[str, float]) -> None:
        """Nothing."""

    def flush(self) -> None:
        """Nothing."""

    def summarise(self, rows: Mapping[str, Mapping[str, Any]], figures: Sequence[Path]) -> None:
        """Nothing."""

    def close(self, exit_code: int) -> None:
        """Nothing."""


class WandbTracker(Tracker):
    """Mirrors to Weights & Biases; offline runs lie in ``wandb/`` and can be sent with `wandb sync`.

    Args:
        run_dir: the run's folder. Its W&B id is kept there, so a resumed run goes on as the same one.
        project: W&B project.
        name: W&B's display name; None: theirs.
        tags: W&B tags.
        mode: online or offline.
        may_fall_back: go offline, with a warning, where the server cannot be reached.
        config: the run's configuration and provenance.

    Raises:
        ValueError: the server cannot be reached, or refuses, and ``may_fall_back`` is False.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        project: str,
        name: str | None,
        tags: Sequence[str],
        mode: Mode,
        may_fall_back: bool,
        config: Mapping[str, Any],
    ) -> None:
        import wandb

        self._wandb = wandb
        self._pending: list[dict[str, Any]] = []
        arguments: dict[str, Any] = {
            "project": project,
            "name": name,
            "tags": list(tags),
            "dir": str(run_dir),
            "id": _run_id(run_dir),
            "resume": "allow" if mode == "online" else None,
            "config": dict(config),
        }
        try:
            self._run = wandb.init(mode=mode, settings=_settings(wandb, mode), **arguments)
        except (wandb.Error, OSError) as error:
            reason = str(error).strip().split("\n")[0]
            if mode == "offline" or not may_fall_back:
                raise ValueError(
                    f"tracker: Weights & Biases cannot start {mode} ({reason}); "
                    "use tracker.mode=offline or tracker=none"
                ) from error
            logger.warning("Weights & Biases cannot be reached (%s): tracking offline", reason)
            (run_dir / "wandb" / "run_id").unlink()  # the failed attempt still holds it
            arguments.update(id=_run_id(run_dir), resume=None)
            self._run = wandb.init(mode="offline", settings=_settings(wandb, "offline"), **arguments)

    def step(self, group: str, step: StepRecord) -> None:
        """Keep the step's numbers until ``flush``."""
        self._pending.append({_key(group, name): value for name, value in step_numbers(step).items()})

    def point(self, numbers: Mapping[str, float]) -> None:
        """Hand over a point, under names that W&B takes."""
        self._run.log({_key("", name.replace("@", "_at_")): value for name, value in numbers.items()})

    def flush(self) -> None:
        """Hand over what was kept; about a millisecond a step."""
        for numbers in self._pending:
            self._run.log(numbers)
        self._pending = []

    def summarise(self, rows: Mapping[str, Mapping[str, Any]], figures: Sequence[Path]) -> None:
        """The rows as summary values and as a table, the figures as images."""
        self.flush()
        is_modelled = one_clock(rows.values())
        names = [time_field(name, is_modelled=is_modelled) for name in _NUMBERS]
        columns: list[Any] = [*_TABLE, *(("cost_model",) if is_modelled else ()), *names]
        data: list[Any] = [[row.get(column) for column in columns] for row in rows.values()]
        media: dict[str, Any] = {"summary": self._wandb.Table(columns=columns, data=data)}
        media.update({f"figures/{path.stem}": self._wandb.Image(str(path)) for path in figures})
        self._run.log(media)
        self._run.summary.update(
            {
                _key(group, f"summary/{name}"): row[name]
                for group, row in rows.items()
                for name in names
                if row.get(name) is not None
            }
        )

    def close(self, exit_code: int) -> None:
        """Send the rest and end the W&B run."""
        self.flush()
        self._run.finish(exit_code=exit_code)


def step_numbers(step: StepRecord) -> dict[str, float]:
    """What is mirrored of a step, times named by its clock; rates without a denominator are left out."""
    emitted = sum(row.emitted for row in step.rows)
    drafted = sum(row.drafted for row in step.rows)
    verified = sum(row.verified for row in step.rows)
    accepted = sum(row.accepted_emitted for row in step.rows)
    numbers: dict[str, float] = {
        "step": step.step,
        "batch": len(step.rows),
        "prefill_tokens": step.num_prefill_tokens,
        "emitted_tokens": emitted,
        "drafted_tokens": drafted,
        "verified_tokens": verified,
        "accepted_tokens": accepted,
        "wall_s": step.wall_s,
    }
    if step.rows:
        numbers["depth"] = drafted / len(step.rows)
    if verified:
        numbers["acceptance_rate"] = accepted / verified
    if step.wall_s > 0:
        numbers["tokens_per_s"] = emitted / step.wall_s
    return named_by_clock(numbers, is_modelled=step.is_modelled)


def _settings(wandb: Any, mode: Mode) -> Any:
    """Quiet, and without the background samplers that would share the cores with the run."""
    return wandb.Settings(
        silent=True,
        console="off",
        x_disable_stats=True,
        x_disable_machine_info=True,
        disable_git=True,
        disable_code=True,
        disable_job_creation=True,
        init_timeout=_INIT_TIMEOUT_S[mode],
    )


def _run_id(run_dir: Path) -> str:
    """The id in the run's folder, made the first time."""
    path = run_dir / "wandb" / "run_id"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(uuid.uuid4().hex[:12], encoding="utf-8")
    return path.read_text(encoding="utf-8")


def _key(group: str, name: str) -> str:
    """A W&B metric name; theirs may not hold spaces."""
    return "/".join([_NOT_A_NAME.sub("_", group), name]) if group else name
