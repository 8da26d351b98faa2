"""The learning rate and the order of the data, as functions of the step alone.

Nothing here has a state, so that a training that was stopped goes on as if it had not been.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from dspark.training.settings import TrainSettings


def learning_rate(step: int, settings: TrainSettings) -> float:
    """Of step 0, 1, ...: a linear warm-up, then a cosine down to ``final_share`` of the peak."""
    warmup = math.ceil(settings.warmup_share * settings.num_steps)
    if step < warmup:
        return settings.learning_rate * (step + 1) / warmup
    progress = (step - warmup) / max(1, settings.num_steps - warmup)
    share = settings.final_share + (1 - settings.final_share) * (1 + math.cos(math.pi * progress)) / 2
    return settings.learning_rate * share


def items_of_step(step: int, *, num_items: int, batch_size: int, seed: int) -> list[int]:
    """The items that a step trains on: one shuffled pass over all of them after the other."""
    first = step * batch_size
    chosen = []
    orders: dict[int, list[int]] = {}
    for place in range(first, first + batch_size):
        epoch, within = divmod(place, num_items)
        if epoch not in orders:
            orders[epoch] = torch.randperm(num_items, generator=generator_of(seed, 0, epoch)).tolist()
        chosen.append(orders[epoch][within])
    return chosen


def generator_of(*numbers: int) -> torch.Generator:
    """A generator whose numbers follow from these."""
    mixed = 0
    for number in numbers:  # SplitMix64's constant; any odd one would keep neighbours apart
        mixed = ((mixed ^ number) * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & (2**63 - 1)
    return torch.Generator().manual_seed(mixed)
