"""A clock that charges another machine's seconds for the steps that this one takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import torch

from dspark.engine.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dspark.cost.base import CostModel
    from dspark.engine.clock import StepSizes


class ModelledClock(Clock):
    """Starts at 0 and moves by a cost model's seconds alone.

    The engine runs the real target and drafter, so depths, drafts and acceptance are real; how long
    a step took is what ``cost`` says of its sizes (design: ``step_time_s``):

    * ``draft`` is the model's ``draft_s`` at the step's depth, ``target`` its ``target_s`` for all
      tokens of the pass, prompt chunks included, and ``rest`` its ``overhead_s``; ``policy`` and
      ``verify`` take no time of their own.
    * Rows are decode rows: a step that only reads prompts has none. A step whose rows all found
      nothing to draft has depth 0, whatever was planned.
    * A drafter's own reading of the prompt is not charged, since cost models have no term for it.

    The same tokens under the same model give bitwise the same times. One clock serves one engine.

    Args:
        cost: seconds of a step on the machine that is studied.
    """

    is_modelled: ClassVar[bool] = True

    def __init__(self, cost: CostModel) -> None:
        self.cost = cost
        self._now_s = 0.0

    def now_s(self) -> float:
        """Seconds charged and waited for so far."""
        return self._now_s

    def wait_until_s(self, time_s: float) -> None:
        """Be there at once: nothing happens in between."""
        self._now_s = max(self._now_s, time_s)

    def charge(self, sizes: StepSizes) -> Mapping[str, float]:
        """Move on by the model's seconds for a step of these sizes; they are given back by phase.

        Raises:
            ValueError: the cost model gives no time, or a negative one.
        """
        time = self.cost.step_time_s(
            decode_rows=torch.tensor(sizes.num_decode_rows),
            tokens=torch.tensor(sizes.num_pass_tokens),
            context_tokens=torch.tensor(sizes.context_tokens),
            draft_tokens=torch.tensor(sizes.depth),
        )
        seconds = {
            "draft": float(time.draft_s),
            "target": float(time.target_s),
            "rest": float(time.overhead_s),
        }
        for phase, charged_s in seconds.items():
            if not 0 <= charged_s < math.inf:
                raise ValueError(
                    f"a modelled clock goes by seconds >= 0, because time does, got {charged_s!r} s of "
                    f"{phase} from the cost model for {sizes.num_decode_rows} decode rows, "
                    f"{sizes.num_pass_tokens} tokens, {sizes.context_tokens} cached tokens and depth "
                    f"{sizes.depth}: use another cost model"
                )
        for charged_s in seconds.values():
            self._now_s += charged_s
        return seconds
