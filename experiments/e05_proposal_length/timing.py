"""Where the time of a round goes: rounds of the engine, with the sequential head's modules timed."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from dspark.drafters.block import BlockDrafter
from dspark.drafters.block_model import BlockBackbone
from dspark.drafters.formats import load_drafter_folder
from dspark.engine.clock import WallClock
from dspark.engine.engine import Engine
from dspark.models.sources import SMOLLM2, resolve_source
from dspark.models.synthetic import make_synthetic_target
from dspark.models.target import load_target
from dspark.policies.fixed import Fixed
from dspark.types import Request, SamplingParams
from dspark.workload.prompts import PromptSpec, encode_prompts, load_prompts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import nn

    from dspark.models.target import HFTarget

PROMPT_TOKENS = 16
WARM_UP_ROUNDS = 1  # in which the drafter reads the prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Mean seconds of a round."""

    wall_s: float
    target_s: float
    draft_s: float
    head_s: float  # of the sequential head's modules; a part of draft_s


class Stopwatch:
    """Seconds spent inside modules, by hooks around them."""

    def __init__(self, modules: list[nn.Module], clock: WallClock) -> None:
        self.total_s = 0.0
        self._clock, self._start_s = clock, 0.0
        self._hooks = [module.register_forward_pre_hook(self._begin) for module in modules]
        self._hooks += [module.register_forward_hook(self._end) for module in modules]

    def remove(self) -> None:
        """Leave the modules as they were."""
        for hook in self._hooks:
            hook.remove()

    def _begin(self, *_: object) -> None:
        self._start_s = self._clock.now_s()

    def _end(self, *_: object) -> None:
        self.total_s += self._clock.now_s() - self._start_s


def measure_rounds(
    drafter: Path, num_rounds: Mapping[int, int], *, depth: int, quick: bool = False
) -> dict[int, Round]:
    """A round of every batch size, the mean of so many; all rows draft ``depth`` tokens.

    Args:
        drafter: folder of a DSpark drafter.
        num_rounds: rounds to time, by batch size.
        depth: of every draft.
        quick: take the tiny target of ``debug=smoke``, which lies beside the drafter afterwards.
    """
    if quick:
        folder = make_synthetic_target(drafter.parent / "target", max_context=4096)
    else:
        folder = resolve_source(SMOLLM2)
    target = load_target(folder)
    model = load_drafter_folder(drafter, target)
    assert isinstance(model, BlockBackbone), "a need of the experiment"
    ours = BlockDrafter(model, kernels=None if target.native is None else target.native.kernels)
    return {batch: _measured(target, ours, batch, count, depth) for batch, count in num_rounds.items()}


def _measured(target: HFTarget, drafter: BlockDrafter, batch: int, count: int, depth: int) -> Round:
    engine = Engine(
        target, drafter, Fixed(depth=depth), max_batch_size=batch, prefill_chunk=batch * PROMPT_TOKENS
    )
    head = drafter.model.markov_head
    assert head is not None, "a need of the experiment"
    watch = Stopwatch(list(head.children()), WallClock(target.device))
    rounds: list[Round] = []
    num_tokens = (WARM_UP_ROUNDS + count + 1) * (depth + 1) + 1  # room for every draft, whatever is accepted
    try:
        for step in engine.run(_requests(target, batch, num_tokens)):
            if step.num_prefill_rows == 0:
                assert all(row.drafted == depth for row in step.rows), "a draft was cut for lack of room"
                split = step.time_split_s
                rounds.append(
                    Round(
                        wall_s=step.wall_s,
                        target_s=split["target"],
                        draft_s=split["draft"],
                        head_s=watch.total_s,
                    )
                )
            watch.total_s = 0.0
            if len(rounds) == WARM_UP_ROUNDS + count:
                break
    finally:
        watch.remove()
    timed = rounds[WARM_UP_ROUNDS:]
    return Round(
        wall_s=fmean(each.wall_s for each in timed),
        target_s=fmean(each.target_s for each in timed),
        draft_s=fmean(each.draft_s for each in timed),
        head_s=fmean(each.head_s for each in timed),
    )


def _requests(target: HFTarget, batch: int, num_tokens: int) -> list[Request]:
    """The beginnings of built-in prompts, as plain text, again and again."""
    prompts = load_prompts(PromptSpec())
    ids = encode_prompts(prompts, target.tokenizer, chat_template=False)
    params = SamplingParams(max_new_tokens=num_tokens, ignore_eos=True)
    return [
        Request(request_id=str(row), prompt_ids=ids[row % len(ids)][:PROMPT_TOKENS], params=params)
        for row in range(batch)
    ]
