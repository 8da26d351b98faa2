"""The feed-forward half of a layer, dense or a mixture of experts: weights stored, used and read."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


class FeedForward(ABC):
    """Abstract; concrete ones are frozen dataclasses. All have a gate, so three matrices."""

    @abstractmethod
    def stored_parameters(self, hidden: int) -> int:
        """Matrix weights in memory."""

    @abstractmethod
    def used_parameters(self, hidden: int) -> int:
        """Matrix weights that one token is multiplied by."""

    @abstractmethod
    def read_parameters(self, hidden: int, tokens: Tensor) -> Tensor:
        """Expected matrix weights that a pass of so many tokens reads."""

    @abstractmethod
    def vector_parameters(self, hidden: int) -> int:
        """Biases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense(FeedForward):
    """Gate, up and down projection, used by every token."""

    intermediate: int
    bias: bool = False

    def stored_parameters(self, hidden: int) -> int:
        """Three matrices."""
        return 3 * hidden * self.intermediate

    def used_parameters(self, hidden: int) -> int:
        """All of them."""
        return self.stored_parameters(hidden)

    def read_parameters(self, hidden: int, tokens: Tensor) -> Tensor:
        """All of them, whatever the pass holds."""
        return torch.full_like(tokens, self.stored_parameters(hidden))

    def vector_parameters(self, hidden: int) -> int:
        """Biases of the three."""
        return self.bias * (2 * self.intermediate + hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts(FeedForward):
    """Routed experts, of which a token uses a few, and shared ones, which every token uses.

    Raises:
        ValueError: a token uses no expert, or more than there are.
    """

    num_experts: int  # E
    experts_per_token: int  # k
    intermediate: int  # of an expert
    num_shared: int = 0  # of the same size

    def __post_init__(self) -> None:
        _check_experts(self.num_experts, self.experts_per_token)

    def stored_parameters(self, hidden: int) -> int:
        """Router and experts."""
        return hidden * self.num_experts + self._expert(hidden) * (self.num_experts + self.num_shared)

    def used_parameters(self, hidden: int) -> int:
        """Router, k experts and the shared ones."""
        return hidden * self.num_experts + self._expert(hidden) * (self.experts_per_token + self.num_shared)

    def read_parameters(self, hidden: int, tokens: Tensor) -> Tensor:
        """Router, shared experts, and those of the routed ones that some token of the pass chose."""
        covered = expert_coverage(tokens, self.num_experts, self.experts_per_token)
        return hidden * self.num_experts + self._expert(hidden) * (covered + self.num_shared)

    def vector_parameters(self, hidden: int) -> int:
        """None."""
        return 0

    def _expert(self, hidden: int) -> int:
        return 3 * hidden * self.intermediate


def expert_coverage(tokens: Tensor | float, num_experts: int, experts_per_token: int) -> Tensor:
    """Float64: expected number of experts that at least one of ``tokens`` chooses.

    ``N(t) = E (1 - (1 - k/E)^t)``: every token chooses k of E experts, uniformly and on its own.
    Real routers are less even, so N is an upper estimate of what a pass reads.

    Raises:
        ValueError: k is not between 1 and E.
    """
    _check_experts(num_experts, experts_per_token)
    missed = (1 - experts_per_token / num_experts) ** torch.as_tensor(tokens, dtype=torch.float64)
    return num_experts * (1 - missed)


def tokens_for_coverage(num_experts: int, experts_per_token: int, share: float = 0.95) -> int:
    """The fewest tokens whose expected coverage is at least ``share`` of all experts.

    Raises:
        ValueError: the share is not in [0, 1), or k is not between 1 and E.
    """
    if not 0 <= share < 1:
        raise ValueError(f"share must be in [0, 1), got {share!r}")
    _check_experts(num_experts, experts_per_token)
    if share == 0:
        return 0
    if num_experts == experts_per_token:
        return 1
    tokens = math.log(1 - share) / math.log(1 - experts_per_token / num_experts)
    # logarithms of exact powers may come out a rounding above the whole number
    nearest = round(tokens)
    return nearest if math.isclose(tokens, nearest, rel_tol=1e-12) else math.ceil(tokens)


def _check_experts(num_experts: int, experts_per_token: int) -> None:
    if not 1 <= experts_per_token <= num_experts:
        raise ValueError(
            f"experts_per_token must be between 1 and num_experts={num_experts}, got {experts_per_token}"
        )
