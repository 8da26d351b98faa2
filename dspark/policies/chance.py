"""A policy's own randomness: a pure function of its seed and the step."""

from __future__ import annotations

import torch

from dspark.seeding import Purpose, uniform


def chances(seed: int, step: int, count: int) -> tuple[float, ...]:
    """``count`` independent numbers in [0, 1).

    There is no generator to advance, so asking twice in a step gives the same answer twice, and
    ``observe`` can repeat what ``plan`` drew. Requests draw under other purposes: what a policy
    explores is independent of what is sampled.
    """
    seeds, steps = torch.tensor([seed]), torch.tensor([step])
    return tuple(uniform(seeds, steps, Purpose.POLICY, torch.arange(count)).tolist())
