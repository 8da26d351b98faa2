"""From prompts and their token ids to the requests that an engine runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark.types import Request, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dspark.workload.arrivals import Arrivals
    from dspark.workload.prompts import Prompt


def build_requests(
    prompts: Sequence[Prompt],
    prompt_ids: Sequence[tuple[int, ...]],
    params: SamplingParams | Callable[[Prompt], SamplingParams],
    arrivals: Arrivals,
) -> list[Request]:
    """One request a prompt, in order of arrival, whose ``request_id`` is the prompt's id.

    Args:
        prompts: the prompts.
        prompt_ids: their token ids.
        params: for all requests, or a function that gives each prompt its own.
        arrivals: when they arrive.
    """
    times_s = arrivals.arrival_times_s(len(prompts))
    return [
        Request(
            request_id=prompt.id,
            prompt_ids=ids,
            params=params if isinstance(params, SamplingParams) else params(prompt),
            arrival_s=arrival_s,
        )
        for prompt, ids, arrival_s in zip(prompts, prompt_ids, times_s, strict=True)
    ]
