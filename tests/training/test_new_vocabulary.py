"""With another vocabulary a drafter says of the tokens that both have what it said of them before."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dspark.drafters.block_head import BlockSteps
from dspark.training.new_vocabulary import with_vocabulary
from tests.training.lessons_tools import load, trainee_of

BEFORE = torch.tensor([2, 5, 7, 30, 31, 90, 200, 255])
AFTER = torch.tensor([0, 5, 6, 7, 31, 32, 33, 90, 201, 255])
BOTH = [5, 7, 31, 90, 255]


@pytest.fixture(scope="module")
def target(tiny_llama: Path):
    return load(tiny_llama)


def _logits(drafter, hidden: torch.Tensor) -> torch.Tensor:
    """[R, V] of the first two guesses behind each anchor, NaN where there is no token."""
    steps = BlockSteps(drafter, hidden, anchors=[5, 90, 1], depths=[2, 2, 2])
    ids = drafter.target_ids(torch.arange(drafter.spec.draft_vocab_size))
    wide = torch.full((3, drafter.spec.vocab_size), torch.nan)
    wide[:, ids] = steps.logits()
    return wide


@pytest.mark.parametrize("head", ["vanilla", "gated", "rnn"])
@pytest.mark.parametrize("train_head", [False, True], ids=["targets-head", "own-head"])
def test_known_tokens_keep_their_logits_and_new_ones_get_the_targets(target, head, train_head) -> None:
    old = trainee_of(target, vocabulary=BEFORE, markov_head_type=head, train_head=train_head).drafter
    table = target.model.get_output_embeddings().weight
    if train_head:
        with torch.no_grad():
            old.lm_head.weight.add_(torch.randn(8, 64, generator=torch.Generator().manual_seed(0)))
    new = with_vocabulary(old, AFTER, table)
    assert new.target_ids(torch.arange(10)).tolist() == AFTER.tolist()
    assert (new.spec.draft_vocab_size, new.spec.vocab_size) == (10, old.spec.vocab_size)
    hidden = torch.randn(3, 2, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        before, after = _logits(old, hidden), _logits(new, hidden)
        torch.testing.assert_close(after[:, BOTH], before[:, BOTH])
        fresh = [token for token in AFTER.tolist() if token not in BOTH]
        torch.testing.assert_close(after[:, fresh], hidden[:, 0] @ table[fresh].T)
    gone = [token for token in BEFORE.tolist() if token not in BOTH]
    assert bool(after[:, gone].isnan().all())
    # what belongs to no token of the vocabulary is the same, weight for weight
    weights = dict(old.named_parameters())
    same = [name for name, weight in new.named_parameters() if torch.equal(weight, weights[name])]
    assert {"fc.weight", "norm.weight", "layers.0.mlp.gate_proj.weight", "markov_head.markov_w1.weight"} <= {
        *same
    }


def test_an_eagle3_head_changes_its_vocabulary_too(target) -> None:
    heads = {"markov_rank": 0, "confidence_head": False, "confidence_with_markov": False}
    old = trainee_of(target, vocabulary=BEFORE, kind="eagle3", **heads).drafter
    table = target.model.get_output_embeddings().weight
    new = with_vocabulary(old, AFTER, table)
    torch.testing.assert_close(new.lm_head.weight, table[AFTER])
    assert new.target_ids(torch.arange(10)).tolist() == AFTER.tolist()
