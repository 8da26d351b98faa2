"""Requests carry the prompt's id, its tokens, its parameters and its arrival."""

import pytest

from dspark.types import SamplingParams
from dspark.workload.arrivals import ClosedLoop, Poisson
from dspark.workload.prompts import PromptSpec, load_prompts
from dspark.workload.requests import build_requests

PROMPTS = load_prompts(PromptSpec(num_requests=4))
IDS = [(i, i + 1) for i in range(4)]


def test_requests_in_prompt_order():
    params = SamplingParams(max_new_tokens=7)
    requests = build_requests(PROMPTS, IDS, params, ClosedLoop(batch_size=2))
    assert [request.request_id for request in requests] == [prompt.id for prompt in PROMPTS]
    assert [request.prompt_ids for request in requests] == IDS
    assert all(request.params is params and request.arrival_s == 0.0 for request in requests)


def test_parameters_of_their_own():
    requests = build_requests(
        PROMPTS,
        IDS,
        lambda prompt: SamplingParams(max_new_tokens=len(prompt.domain)),
        ClosedLoop(batch_size=2),
    )
    assert [request.params.max_new_tokens for request in requests] == [
        len(prompt.domain) for prompt in PROMPTS
    ]


def test_arrivals():
    arrivals = Poisson(rate_per_s=2.0, seed=5)
    requests = build_requests(PROMPTS, IDS, SamplingParams(), arrivals)
    assert [request.arrival_s for request in requests] == arrivals.arrival_times_s(4)


def test_every_prompt_needs_its_ids():
    with pytest.raises(ValueError, match="shorter"):
        build_requests(PROMPTS, IDS[:3], SamplingParams(), ClosedLoop(batch_size=2))
