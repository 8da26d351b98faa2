"""What a drafter told of every position, and what became of it: on disk, and read back.

One line a step with decode rows in ``observations.jsonl``. It holds all that an estimator of
acceptance may look at, so any estimator can be run over it later as if it had been there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from dspark.metrics.trace import read_jsonl
from dspark.types import NO_TOKEN, Draft, Signal, StepContext, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

FILE_NAME = "observations.jsonl"

_CONTEXT_FIELDS = ("slots", "is_new", "context_lengths", "remaining_tokens", "depth_caps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The decode rows of one step: what was known, drafted and decided; B entries a tensor."""

    request_ids: tuple[str, ...]
    ctx: StepContext
    verdict: Verdict  # its draft has lengths and signals; tokens are not kept


def observation_to_json(
    request_ids: Sequence[str], ctx: StepContext, verdict: Verdict, *, attempt: int
) -> dict[str, Any]:
    """A step as a plain object; signals are lists as long as the row's draft.

    Args:
        request_ids: of the B decode rows.
        ctx: what a policy knew of them.
        verdict: what was decided, draft included.
        attempt: which start of the run this is, from 0.
    """
    draft = verdict.draft
    lengths = [0] * len(request_ids) if draft is None else draft.lengths.tolist()
    signals = {} if draft is None else draft.signals
    return {
        "attempt": attempt,
        "step": ctx.step,
        "num_slots": ctx.num_slots,
        "request_id": list(request_ids),
        **{name: getattr(ctx, name).tolist() for name in _CONTEXT_FIELDS},
        "drafted": lengths,
        "verified": verdict.verify_lengths.tolist(),
        "accepted": verdict.accepted.tolist(),
        "signals": {signal.value: _ragged(values, lengths) for signal, values in signals.items()},
    }


def observation_from_json(item: dict[str, Any], keep: Sequence[int]) -> Observation:
    """The rows ``keep`` of the step that ``observation_to_json`` wrote."""

    def column(name: str) -> Tensor:
        return torch.tensor([item[name][i] for i in keep])

    lengths = [item["drafted"][i] for i in keep]
    width = max(lengths, default=0)
    draft = None
    if width > 0:
        draft = Draft(
            tokens=torch.full((len(keep), width), NO_TOKEN),
            lengths=torch.tensor(lengths),
            q=None,
            signals={
                Signal(name): _padded([rows[i] for i in keep], width)
                for name, rows in item["signals"].items()
            },
        )
    accepted = column("accepted")
    return Observation(
        request_ids=tuple(item["request_id"][i] for i in keep),
        ctx=StepContext(
            step=item["step"],
            num_slots=item["num_slots"],
            cost=None,
            **{name: column(name) for name in _CONTEXT_FIELDS},
        ),
        verdict=Verdict(
            verify_lengths=column("verified"),
            accepted=accepted,
            next_token=torch.full_like(accepted, NO_TOKEN),
            draft=draft,
        ),
    )


def read_observations(run_dir: Path) -> list[Observation]:
    """The steps of a run's folder in order, with the rows of finished requests alone.

    A request that an interruption cut short runs again from its prompt, so only the attempt that
    finished it counts; steps without such rows are left out.

    Raises:
        ValueError: the folder has no observations, or a line of it is damaged.
    """
    path = run_dir / FILE_NAME
    if not path.is_file():
        raise ValueError(f"{run_dir} has no {FILE_NAME}: make one with `dspark calibrate`")
    attempts = {item["request_id"]: item["attempt"] for item in read_jsonl(run_dir / "outputs.jsonl")}
    found = []
    for item in read_jsonl(path):
        names, attempt = item["request_id"], item["attempt"]
        keep = [i for i, name in enumerate(names) if attempts.get(name) == attempt]
        if keep:
            found.append(observation_from_json(item, keep))
    return found


def _ragged(values: Tensor, lengths: Sequence[int]) -> list[list[float]]:
    """Rows of ``values`` [B, K], each as long as its draft; JSON has no infinity, so the largest number."""
    finite = values.double().clamp(min=-sys.float_info.max, max=sys.float_info.max)
    return [row[:length] for row, length in zip(finite.tolist(), lengths, strict=True)]


def _padded(rows: Sequence[Sequence[float]], width: int) -> Tensor:
    """Float64 [B, width], NaN past the end of a row."""
    padded = [[*row, *[torch.nan] * (width - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.float64)
