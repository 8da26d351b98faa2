"""The closed forms of Leviathan et al. (arXiv 2211.17192): what a depth is worth at acceptance α.

The model: every draft token is accepted with probability ``alpha`` independently of all others,
a draft token costs ``cost_ratio`` (c) of a target pass, and a pass costs the same whatever it
verifies. Arguments are numbers or tensors and broadcast; results are float64. The depth is the
paper's γ.
"""

from __future__ import annotations

import torch
from torch import Tensor

Number = Tensor | float


def expected_tokens(alpha: Number, depth: Number) -> Tensor:
    """Tokens a step emits on average, ``(1 - α^(γ+1)) / (1 - α)`` (equation 1)."""
    a, count = _float64(alpha), _float64(depth) + 1
    # expm1 keeps the digits near α = 1, where the quotient becomes the sum of γ+1 ones
    return torch.where(a == 1, count, -torch.expm1(count * a.log()) / (1 - a))


def speedup(alpha: Number, depth: Number, cost_ratio: Number) -> Tensor:
    """Seconds of plain decoding over seconds with drafts, per token (Theorem 3.8)."""
    return expected_tokens(alpha, depth) / (_float64(depth) * _float64(cost_ratio) + 1)


def operations_increase(alpha: Number, depth: Number, ops_ratio: Number) -> Tensor:
    """Arithmetic operations over those of plain decoding, per token (Theorem 3.11).

    Args:
        alpha: acceptance.
        depth: γ.
        ops_ratio: ĉ, operations of the drafter per token over those of the target.
    """
    gamma = _float64(depth)
    return (gamma * _float64(ops_ratio) + gamma + 1) / expected_tokens(alpha, gamma)


def best_depth(alpha: Number, cost_ratio: Number, max_depth: int) -> Tensor:
    """Int64 γ* in [0, max_depth], the depth of the largest speed-up; the smaller one of equals.

    At least 1 exactly where α > c (Corollary 3.9).
    """
    depths = torch.arange(max_depth + 1)
    gains = speedup(_float64(alpha)[..., None], depths, _float64(cost_ratio)[..., None])
    return gains.argmax(-1)


def oracle_speedup(alpha: Number, cost_ratio: Number) -> Tensor:
    """Speed-up if every step knew beforehand how many tokens will be accepted (§3.5).

    It drafts exactly these, α / (1 - α) on average, and emits one more: ``1 / (1 - α + cα)``. That
    is at most e / (e - 1) = 1.58 times the best fixed depth, reached as c goes to 0 and α to 1.
    """
    a = _float64(alpha)
    return 1 / (1 - a + _float64(cost_ratio) * a)


def _float64(value: Number) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64)
