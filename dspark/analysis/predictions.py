"""What an estimator would have said of every recorded draft, next to what became of it.

Reads observations, needs no model: the estimator runs over the recorded steps in their order, and
answers for a step before it learns from it, as it does in an engine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from dspark.policies.estimators import survival
from dspark.types import Knowledge

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from torch import Tensor

    from dspark.metrics.observations import Observation
    from dspark.policies.estimators import Estimator


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """An estimator's answers for S drafts of up to K tokens, and the outcomes."""

    request_ids: tuple[str, ...]  # S
    conditional: Tensor  # float64 [S, K], NaN past the verify length
    verify_lengths: Tensor  # [S]
    accepted: Tensor  # [S]

    @property
    def depth(self) -> int:
        """K."""
        return self.conditional.shape[1]

    def of(self, request_ids: Collection[str]) -> Predictions:
        """The drafts of these requests."""
        keep = torch.tensor([name in request_ids for name in self.request_ids], dtype=torch.bool)
        return Predictions(
            request_ids=tuple(name for name in self.request_ids if name in request_ids),
            conditional=self.conditional[keep],
            verify_lengths=self.verify_lengths[keep],
            accepted=self.accepted[keep],
        )

    def answered(self, conditional: Tensor) -> Predictions:
        """The same drafts with other answers, float64 [S, K]."""
        return replace(self, conditional=conditional)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """N predicted probabilities and whether the predicted happened."""

    predicted: Tensor  # float64 [N]
    happened: Tensor  # bool [N]

    def __len__(self) -> int:
        return self.predicted.shape[0]


def predict(observations: Sequence[Observation], estimator: Estimator, depth: int) -> Predictions:
    """The estimator's answers over a recording; rows without a verified draft are left out.

    Args:
        observations: steps in order.
        estimator: learns as it goes, from nothing.
        depth: K, the largest depth of the recording.

    Raises:
        ValueError: the recording lacks a signal that the estimator reads.
    """
    request_ids: list[str] = []
    answers, lengths, accepted = [], [], []
    num_slots = max((observation.ctx.num_slots for observation in observations), default=0)
    state = estimator.init(num_slots, depth)
    reads_signals = estimator.knowledge is not Knowledge.PAST
    for observation in observations:
        verdict = observation.verdict
        if verdict.draft is not None:
            width = verdict.draft.tokens.shape[1]
            signals = verdict.draft.signals if reads_signals else None
            answer = estimator.conditional(observation.ctx, signals, width, state)
            verified = torch.arange(width) < verdict.verify_lengths[:, None]
            answer = pad(answer.where(verified, torch.nan), (0, depth - width), value=torch.nan)
            drafted = verdict.verify_lengths > 0
            request_ids += [
                name for name, some in zip(observation.request_ids, drafted.tolist(), strict=True) if some
            ]
            answers.append(answer[drafted])
            lengths.append(verdict.verify_lengths[drafted])
            accepted.append(verdict.accepted[drafted])
        state = estimator.observe(observation.ctx, verdict, state)
    none = torch.zeros(0, dtype=torch.int64)
    return Predictions(
        request_ids=tuple(request_ids),
        conditional=torch.cat([torch.zeros(0, depth, dtype=torch.float64), *answers]),
        verify_lengths=torch.cat([none, *lengths]),
        accepted=torch.cat([none, *accepted]),
    )


def conditional_outcomes(predictions: Predictions, k: int) -> Outcomes:
    """Position ``k`` (from 1) of the drafts accepted up to k - 1: c_k, and whether it was accepted."""
    reached = (predictions.verify_lengths >= k) & (predictions.accepted >= k - 1)
    return Outcomes(
        predicted=predictions.conditional[reached, k - 1], happened=predictions.accepted[reached] >= k
    )


def survival_outcomes(predictions: Predictions, k: int) -> Outcomes:
    """Position ``k`` (from 1) of all drafts verified that far: c_1 ... c_k, and whether all were accepted."""
    verified = predictions.verify_lengths >= k
    return Outcomes(
        predicted=survival(predictions.conditional[verified, :k])[:, -1],
        happened=predictions.accepted[verified] >= k,
    )


def split_requests(
    request_ids: Collection[str], *, fit_fraction: float, seed: int
) -> tuple[frozenset[str], frozenset[str]]:
    """The requests to fit on and those to judge by, disjoint, at least one each.

    Drafts of one request resemble each other, so a request is never on both sides. The split
    depends on the set of ids and the seed alone.

    Raises:
        ValueError: fewer than two requests, or a share outside (0, 1).
    """
    if not 0 < fit_fraction < 1:
        raise ValueError(f"fit_fraction must be in (0, 1), got {fit_fraction}")
    names = sorted(set(request_ids))
    if len(names) < 2:
        raise ValueError(
            "calibration fits on some requests and judges by others, so two must have run, "
            f"got {len(names)}: run more requests, such as workload.num_requests=32"
        )
    random.Random(seed).shuffle(names)
    num_fit = min(max(round(fit_fraction * len(names)), 1), len(names) - 1)
    return frozenset(names[:num_fit]), frozenset(names[num_fit:])
