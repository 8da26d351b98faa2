"""A step with its logits on another device: the same text, no mixture, and no needless wait."""

import pytest
import torch
import yaml

from dspark.config.build import build_policy
from dspark.config.paths import config_dir
from dspark.config.schema import component
from dspark.cost.published import published_cost
from dspark.drafters import NgramDrafter
from dspark.drafters.draft_model import DraftModelDrafter
from dspark.drafters.synthetic import SyntheticDrafter
from dspark.engine.clock import Clock
from dspark.engine.engine import Engine
from dspark.policies.confidence import Confidence
from dspark.policies.fixed import Fixed
from dspark.types import LosslessClass, SamplingParams
from dspark.verification import Block, Coupled, Rejection, SyntheticAcceptance
from tests.engine.far_device import DEVICE, Far, FarDevice, move_logits
from tests.engine.tools import Jagged, load, outputs, random_prompts

PROMPTS = random_prompts(3, low=5, high=12)
COST = published_cost("illusion-llama3.1-8b-h100-ngram")
GREEDY = SamplingParams(max_new_tokens=6)
SAMPLED = SamplingParams(
    max_new_tokens=6, temperature=0.9, top_p=0.95, repetition_penalty=1.1, min_new_tokens=3
)
POLICIES = {path.stem: path for path in sorted((config_dir() / "policy").glob("*.yaml"))}


@pytest.fixture(scope="module")
def models(tiny_llama, tiny_llama_drafter):
    """Target and draft model, by whether their logits are far."""
    pairs = {
        far: [load(path, numerics="fast") for path in (tiny_llama, tiny_llama_drafter)]
        for far in (False, True)
    }
    for model in pairs[True]:
        move_logits(model)
    return pairs


class Ticks(Clock):
    """A clock that goes on by a millisecond whenever it is asked, so that measured times repeat."""

    def __init__(self) -> None:
        self.ticks = 0

    def now_s(self) -> float:
        self.ticks += 1
        return self.ticks * 1e-3

    def wait_until_s(self, time_s: float) -> None:
        raise AssertionError("nothing arrives late here")


def run(models, make_drafter, policy, rule, params, *, far):
    """Texts, records, and how often the host waited."""
    target, draft_model = models[far]
    drafter = make_drafter(draft_model)
    with FarDevice() as device:
        engine = Engine(
            target, drafter, policy, verification=rule, max_batch_size=3, cost=COST, clock=Ticks()
        )
        texts, records = outputs(engine, PROMPTS, params)
    return texts, records, device.num_waits


DRAFTERS = {
    "none": lambda model: None,
    "ngram": lambda model: NgramDrafter(),
    "draft_model": DraftModelDrafter,
    "synthetic": lambda model: SyntheticDrafter(model.vocab_size),
}


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("rule", [Rejection(), Block(), Coupled()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_rule_and_drafter_writes_the_same_text(models, drafter, rule, params):
    policy = Fixed(depth=0) if drafter == "none" else Jagged()
    near, _, no_waits = run(models, DRAFTERS[drafter], policy, rule, params, far=False)
    far, _, waits = run(models, DRAFTERS[drafter], policy, rule, params, far=True)
    assert far == near
    assert no_waits == 0
    assert waits > 0


def test_synthetic_acceptance_writes_the_same_text(models):
    arguments = (models, DRAFTERS["synthetic"], Fixed(depth=3), SyntheticAcceptance(), SAMPLED)
    assert run(*arguments, far=True)[0] == run(*arguments, far=False)[0]


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_decides_alike(models, name):
    """Policies see the host alone, so their states and choices need not know where the model is."""
    node = yaml.safe_load(POLICIES[name].read_text(encoding="utf-8"))
    policy = build_policy(component(node, name))
    rule = Coupled() if policy.lossless_class is LosslessClass.SAMPLED else Rejection()
    make = DRAFTERS["draft_model"] if policy.needs <= DraftModelDrafter.signals else DRAFTERS["synthetic"]
    near = run(models, make, policy, rule, SAMPLED, far=False)
    far = run(models, make, policy, rule, SAMPLED, far=True)
    assert far[0] == near[0]
    depths = [[[row.planned for row in record.rows] for record in records] for _, records, _ in (near, far)]
    assert depths[0] == depths[1]


def test_a_greedy_step_waits_once_for_the_pass_and_once_a_drafted_token(models):
    _, records, waits = run(models, DRAFTERS["none"], Fixed(depth=0), Rejection(), GREEDY, far=True)
    assert waits == len(records)
    _, records, waits = run(models, DRAFTERS["ngram"], Jagged(), Rejection(), GREEDY, far=True)
    assert waits == len(records)
    _, records, waits = run(models, DRAFTERS["draft_model"], Jagged(), Rejection(), GREEDY, far=True)
    drafted = [max((row.drafted for row in record.rows), default=0) for record in records]
    assert sum(drafted) > 3
    assert waits == len(records) + sum(drafted)


def test_a_signal_that_is_read_costs_one_more_wait_a_drafted_token(models):
    policy = Confidence(depth=3, threshold=0.0)
    _, records, waits = run(models, DRAFTERS["draft_model"], policy, Rejection(), GREEDY, far=True)
    drafted = [max((row.drafted for row in record.rows), default=0) for record in records]
    assert waits == len(records) + 2 * sum(drafted)


def test_the_make_believe_device_refuses_what_a_real_one_does():
    with FarDevice() as device:
        far, near = torch.arange(4, device=DEVICE), torch.arange(4)
        assert isinstance(far, Far)
        assert far.device == DEVICE
        assert (far + 1).device == DEVICE
        assert near.device == torch.device("cpu")
        assert (far + torch.tensor(1)).device == DEVICE  # a number
        for mixed in (lambda: far + near, lambda: near[far], lambda: torch.cat([far, near])):
            with pytest.raises(AssertionError, match="mixes tensors of two devices"):
                mixed()
        with pytest.raises(AssertionError, match="__setitem__ mixes"):
            far[near] = near
        assert far[near].device == DEVICE
        far[1:3] = near[:2]
        assert device.num_waits == 0
        assert far.tolist() == [0, 0, 1, 3]
        assert far.to(torch.device("cpu")).device == torch.device("cpu")
        assert bool(far.any())
        assert far[far > 0].device == DEVICE
        assert device.num_waits == 4
