"""The laws of acceptance as pure functions of probabilities: token-wise and block-wise.

A law answers three questions about rows whose drafts ``x_1..x_l`` were drawn from q: with which
number each draft is compared (``acceptance``), how many are kept given uniforms (``select``), and
from what the token after them is drawn (``final``). No random number is made here, so the output
law of the code itself can be integrated exactly. Any float dtype.

Shapes: ``R`` rows, ``K`` largest length, ``M`` the sum of 1 + lengths, ``V`` vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a law judges by."""

    p: Tensor  # [M, V] target probabilities, row after row
    first: Tensor  # [R] index in p of the row's first position
    tokens: Tensor  # [R, K] drafts, anything past lengths
    lengths: Tensor  # [R]
    q: Tensor | None  # [B, >=K, V] what the drafts were drawn from; None for point masses
    q_rows: Tensor  # [R] the row's entry in q

    @property
    def depths(self) -> Tensor:
        """Int [K]: 0..K-1, drafts before each one."""
        return torch.arange(self.tokens.shape[1], device=self.tokens.device)

    @property
    def is_drafted(self) -> Tensor:
        """Bool [R, K]: the entries of ``tokens`` that count."""
        return self.depths < self.lengths[:, None]

    def target_probabilities(self) -> Tensor:
        """Float64 [R, K]: p of each draft token; 1 past lengths."""
        at = torch.where(self.is_drafted, self.first[:, None] + self.depths, 0)
        p = self.p[at, torch.where(self.is_drafted, self.tokens, 0)].double()
        return torch.where(self.is_drafted, p, 1.0)

    def draft_probabilities(self) -> Tensor:
        """Float64 [R, K]: q of each draft token; 1 past lengths and for point masses."""
        if self.q is None:
            return torch.ones_like(self.tokens, dtype=torch.float64)
        q = self.q[self.q_rows[:, None], self.depths, torch.where(self.is_drafted, self.tokens, 0)]
        return torch.where(self.is_drafted, q.double(), 1.0)


class AcceptanceLaw(ABC):
    """Abstract; concrete laws are final."""

    @abstractmethod
    def acceptance(self, seen: Evidence) -> Tensor:
        """Float64 [R, K] in [0, 1]: what each draft's uniform is compared with; 0 past lengths."""

    @abstractmethod
    def select(self, uniforms: Tensor, acceptance: Tensor) -> Tensor:
        """Int [R]: drafts accepted, given uniforms [R, K] in [0, 1)."""

    @abstractmethod
    def scale(self, seen: Evidence, accepted: Tensor) -> Tensor:
        """Float64 [R]: weight of p against q in the residual after ``accepted`` [R] drafts."""

    def final(self, seen: Evidence, accepted: Tensor) -> Tensor:
        """Float [R, V], unnormalised: the law of the token after ``accepted`` [R] drafts.

        p itself where all drafts were accepted (the bonus token), else the residual
        ``max(scale * p - q, 0)`` (the recovered token).

        A residual without mass cannot follow a rejection in exact arithmetic: it means scale = 1
        and p = q, where every law accepts. In floating point p and q then agree up to
        rounding, such a rejection is as rare as rounding is small, and p is the right law.
        """
        p = seen.p[seen.first + accepted]
        recovers = accepted < seen.lengths
        if seen.tokens.shape[1] == 0:
            return p
        depth = accepted.clamp(max=seen.tokens.shape[1] - 1)
        if seen.q is None:
            # q is 1 at the rejected token and scale * p never exceeds that, so the token alone drops
            # out; the scale of the rest does not matter
            rejected = torch.where(recovers, seen.tokens.gather(1, depth[:, None]).squeeze(1), 0)
            residual = p.scatter(1, rejected[:, None], 0.0)
        else:
            weight = self.scale(seen, accepted).to(p.dtype)
            residual = (weight[:, None] * p).sub_(seen.q[seen.q_rows, depth]).clamp_(min=0)
        recovers = recovers & (residual.amax(-1) > 0)
        return torch.where(recovers[:, None], residual, p)


class TokenLaw(AcceptanceLaw):
    """Each draft on its own, up to the first failure.

    Leviathan et al., arXiv 2211.17192, algorithm 1: accept x with min(1, p(x)/q(x)), recover from
    max(p - q, 0).
    """

    def acceptance(self, seen: Evidence) -> Tensor:
        """Float64 [R, K]: min(1, p/q) of each draft."""
        ratio = (seen.target_probabilities() / seen.draft_probabilities()).clamp_(max=1)
        return torch.where(seen.is_drafted, ratio, 0.0)

    def select(self, uniforms: Tensor, acceptance: Tensor) -> Tensor:
        """Int [R]: drafts before the first failure."""
        return (uniforms < acceptance).long().cumprod(1).sum(1)

    def scale(self, seen: Evidence, accepted: Tensor) -> Tensor:
        """Float64 [R]: 1."""
        return torch.ones_like(accepted, dtype=torch.float64)


class BlockLaw(AcceptanceLaw):
    """All drafts of a row together: the longest prefix that passes is kept.

    Sun et al., arXiv 2403.10444, algorithm 2. With s_0 = 1 and s_i = min(s_{i-1} p(x_i)/q(x_i), 1),
    prefix i passes with h_i = r_i / (r_i + 1 - s_i), where r_i is the mass of
    max(s_i p - q, 0) at the next position, and the whole draft with h_l = s_l. Failures in between
    do not matter; recover from max(s p - q, 0) at the prefix kept.
    """

    def acceptance(self, seen: Evidence) -> Tensor:
        """Float64 [R, K]: h of each prefix."""
        weights = self._weights(seen)[:, 1:]
        surplus = self._surplus(seen, weights)
        rest = surplus + 1 - weights
        # 0/0 is s = 1 and p = q ahead, where a longer prefix passes for certain: any value will do
        passes = torch.where(rest > 0, surplus / rest, 1.0)
        whole = seen.depths + 1 == seen.lengths[:, None]
        return torch.where(seen.is_drafted, torch.where(whole, weights, passes), 0.0)

    def select(self, uniforms: Tensor, acceptance: Tensor) -> Tensor:
        """Int [R]: the last success."""
        count = torch.arange(1, uniforms.shape[1] + 1, device=uniforms.device)
        passed = torch.where(uniforms < acceptance, count, 0)
        return pad(passed, (1, 0)).amax(1)  # 0 where none passed, or there is none

    def scale(self, seen: Evidence, accepted: Tensor) -> Tensor:
        """Float64 [R]: s of the prefix kept."""
        return self._weights(seen).gather(1, accepted[:, None]).squeeze(1)

    @staticmethod
    def _weights(seen: Evidence) -> Tensor:
        """Float64 [R, K+1]: s_0..s_K."""
        ratios = seen.target_probabilities() / seen.draft_probabilities()
        weights = [torch.ones_like(seen.lengths, dtype=torch.float64)]
        for ratio in ratios.unbind(1):
            weights.append((weights[-1] * ratio).clamp(max=1))
        return torch.stack(weights, dim=1)

    @staticmethod
    def _surplus(seen: Evidence, weights: Tensor) -> Tensor:
        """Float64 [R, K]: r_i of the prefixes a draft follows; 0 elsewhere."""
        if seen.q is None:
            ahead = seen.target_probabilities().roll(-1, dims=1)  # p of the next draft
            return torch.where(_has_next(seen), weights * (1 - ahead).clamp_(min=0), 0.0)
        surplus = torch.zeros_like(weights)
        for i in range(1, weights.shape[1]):
            rows = (seen.lengths > i).nonzero().squeeze(1)
            weight = weights[rows, i - 1].to(seen.p.dtype)
            excess = seen.p[seen.first[rows] + i].mul_(weight[:, None]).sub_(seen.q[seen.q_rows[rows], i])
            surplus[rows, i - 1] = _row_sums(excess.clamp_(min=0))
        return surplus


def _has_next(seen: Evidence) -> Tensor:
    """Bool [R, K]: drafts that are not the row's last."""
    return seen.depths + 1 < seen.lengths[:, None]


def _row_sums(x: Tensor) -> Tensor:
    """Float64 [R]: sums of x [R, V], each row's the same in any company.

    A plain sum may split a lone row between threads and so round it differently.
    """
    return x.cumsum(-1)[:, -1].double()
