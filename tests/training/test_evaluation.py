"""What evaluation predicts is what the engine then does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dspark.drafters.block import BlockDrafter
from dspark.engine.engine import Engine
from dspark.metrics.definitions import acceptance_length
from dspark.metrics.tally import Tally
from dspark.policies.fixed import Fixed
from dspark.training.evaluation import evaluate, walk
from dspark.training.lessons import TargetTeacher
from dspark.types import Request, SamplingParams
from dspark.verification import Greedy
from tests.training.lessons_tools import DRAFT, WEIGHTS, answers_of, load, trainee_of


def test_a_walk_by_hand() -> None:
    # anchors 0..5, 6 tokens to emit: 2 guesses match at 0, so 3 tokens; none at 3, so 1; 3 would at 4,
    # but only 2 tokens are left
    assert walk([2, 9, 9, 0, 3, 9], ended_by_itself=True) == (6, 3)
    # one token is left at 4: an engine that knows the limit drafts nothing for it
    assert walk([3, 9, 9, 9, 0], ended_by_itself=False) == (4, 1)
    assert walk([3, 9, 9, 9, 0], ended_by_itself=True) == (5, 2)


@pytest.mark.parametrize("reduced", [False, True])
def test_the_predicted_acceptance_length_is_the_engines(tiny_llama: Path, reduced: bool) -> None:
    target = load(tiny_llama)
    answers = answers_of(target, count=10, tokens=24)
    vocabulary = torch.arange(0, 259, 2) if reduced else None
    trainee = trainee_of(target, vocabulary=vocabulary, initial_layers=(1,))
    teacher = TargetTeacher(target, trainee.spec.feature_layers)
    _learn(trainee, teacher, answers)
    found = evaluate(trainee, teacher, answers, eos_token_ids=target.eos_token_ids, device=target.device)
    requests = [
        Request(request_id=a.id, prompt_ids=a.prompt_ids, params=SamplingParams(max_new_tokens=24))
        for a in answers
    ]
    engine = Engine(
        target,
        BlockDrafter(trainee.drafter),
        Fixed(depth=DRAFT.block_size),
        verification=Greedy(),
        max_batch_size=4,
    )
    tally = Tally()
    for step in engine.run(requests):
        tally.add(step)
    assert [engine.completions[a.id].token_ids for a in answers] == [a.token_ids for a in answers]
    assert found["predicted_tau"] == pytest.approx(acceptance_length(tally.totals))
    assert found["predicted_tau"] > 1.1, "a drafter that is never right shows nothing"


def _learn(trainee, teacher, answers) -> None:
    """A few steps on the very answers, so that some guesses match."""
    from dspark.training.anchors import all_anchors
    from dspark.training.batches import make_batch

    lessons = teacher.lessons(answers)
    batch = make_batch(lessons, [all_anchors(x.num_prompt, len(x.features)) for x in lessons], 3)
    optimizer = torch.optim.Adam([p for p in trainee.parameters() if p.requires_grad], lr=5e-3)
    for _ in range(25):
        sums = trainee(batch)
        optimizer.zero_grad()
        (sums.loss / sums.weight).backward()
        optimizer.step()


def test_a_perfect_drafter_is_expected_to_be_accepted_whole(tiny_llama: Path) -> None:
    # guesses by the target's own law: tv 0, so tau = 1 + K
    from dspark.training.curves import numbers
    from dspark.training.losses import Measured, sum_up

    zeros = torch.zeros(4 * 3)
    measured = Measured(ce=zeros, soft_ce=zeros, tv=zeros, confidence=zeros, is_match=zeros == 0)
    found = numbers(sum_up(measured, torch.ones(4, 3, dtype=torch.bool), None, WEIGHTS), WEIGHTS)
    assert found["expected_tau"] == 4.0
