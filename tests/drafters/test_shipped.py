"""The drafter of the package: small, for the default model, lossless, and worth its while."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dspark.drafters.block import BlockDrafter
from dspark.drafters.formats import describe, load_drafter_folder
from dspark.drafters.shipped import SMOLLM2_DSPARK, local_source
from dspark.engine.engine import Engine
from dspark.metrics.definitions import acceptance_length
from dspark.metrics.tally import Tally
from dspark.models.sources import resolve_source
from dspark.models.target import load_target
from dspark.policies.confidence import Confidence
from dspark.policies.fixed import Fixed
from dspark.types import Request, SamplingParams, Signal
from dspark.workload.prompts import PromptSpec, encode_prompts, load_prompts

FOLDER = Path(local_source(SMOLLM2_DSPARK))


@pytest.fixture(scope="module")
def target():
    return load_target(resolve_source("smollm2"))


@pytest.fixture(scope="module")
def drafter(target):
    kernels = None if target.native is None else target.native.kernels
    return BlockDrafter(load_drafter_folder(FOLDER, target), kernels=kernels)


@pytest.fixture(scope="module")
def requests(target):
    prompts = load_prompts(PromptSpec(num_requests=4))
    params = SamplingParams(max_new_tokens=32)
    encoded = encode_prompts(prompts, target.tokenizer)
    return [
        Request(request_id=prompt.id, prompt_ids=ids, params=params)
        for prompt, ids in zip(prompts, encoded, strict=True)
    ]


def _run(target, drafter, policy, requests):
    engine = Engine(target, drafter, policy, max_batch_size=2)
    tally = Tally()
    for step in engine.run(requests):
        tally.add(step)
    return [engine.completions[r.request_id].token_ids for r in requests], tally.totals


def test_it_is_small_safe_and_says_how_it_was_made() -> None:
    files = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert set(files) == {"config.json", "model.safetensors", "README.md"}
    assert sum(files.values()) <= 24e6
    assert json.loads((FOLDER / "config.json").read_text())["dtype"] == "bfloat16"
    spec = describe(FOLDER).spec
    assert (spec.kind, spec.block_size, spec.markov_rank, spec.confidence_head) == ("dspark", 7, 64, True)
    card = (FOLDER / "README.md").read_text()
    for told in ("dspark train experiment=smollm2_dspark", "gsm8k", "humaneval", "mt-bench", "Limits"):
        assert told in card, told


def test_the_text_is_the_targets_own_and_drafts_are_accepted(target, drafter, requests) -> None:
    plain, _ = _run(target, None, Fixed(depth=0), requests)
    text, totals = _run(target, drafter, Fixed(depth=7), requests)
    assert text == plain
    length = acceptance_length(totals)
    assert length is not None
    assert length > 1.5, f"acceptance length {length:.2f}: features, positions or weights do not fit"
    by_confidence = Confidence(depth=7, threshold=0.5, signal=Signal.CONFIDENCE)
    text, stopped = _run(target, drafter, by_confidence, requests)
    assert text == plain
    assert stopped.accepted / stopped.verified > totals.accepted / totals.verified, "it knows when to stop"
