"""The head computes what its description says, and unrolls in training as it drafts."""

import pytest
import torch

from dspark.drafters.eagle3_model import Eagle3Model
from dspark.drafters.eagle3_norms import Eagle3Norms
from dspark.drafters.eagle3_unroll import unroll
from tests.drafters.eagle3_tools import DRAFT_TOKENS, NORMS, VOCAB, WIDTH, Reference, random_head, tiny_spec


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(7)


@pytest.mark.parametrize("norms", NORMS)
@pytest.mark.parametrize("qwen", [False, True], ids=["llama", "qwen"])
def test_unrolled_chains_equal_the_description(norms, qwen, generator):
    spec = tiny_spec(norms=NORMS[norms], qk_norm=qwen, attention_bias=qwen)
    model = random_head(spec)
    features = torch.randn(2, 12, 2 * WIDTH, generator=generator)
    tokens = torch.randint(VOCAB, (2, 12), generator=generator)
    anchors = torch.tensor([[1, 5, 8], [3, 9, 9]])
    hidden = unroll(model, features, tokens, anchors, 3)
    logits = model.lm_head(hidden)
    for row in range(2):
        for place, anchor in enumerate(anchors[row].tolist()):
            drafted = tokens[row, anchor + 1 : anchor + 3].tolist()
            committed = tokens[row, : anchor + 1].tolist()
            wanted = Reference(model).chain(features[row, :anchor], committed, drafted)
            torch.testing.assert_close(logits[row, place].double(), wanted, atol=1e-5, rtol=1e-5)


def test_what_follows_an_anchor_does_not_reach_it(generator):
    model = random_head(tiny_spec())
    features = torch.randn(1, 12, 2 * WIDTH, generator=generator)
    tokens = torch.randint(VOCAB, (1, 12), generator=generator)
    before = unroll(model, features, tokens, torch.tensor([[4]]), 3)
    features[:, 4:], tokens[:, 7:] = 9.0, 3
    assert torch.equal(unroll(model, features, tokens, torch.tensor([[4]]), 3), before)


def test_training_reaches_every_weight_of_the_head_and_none_of_the_targets(generator):
    model = random_head(tiny_spec(norms=NORMS["each_feature"], draft_vocab_size=len(DRAFT_TOKENS)))
    for name, weight in model.named_parameters():
        weight.requires_grad_(name != "embed_tokens.weight")
    features = torch.randn(1, 9, 2 * WIDTH, generator=generator)
    tokens = torch.randint(VOCAB, (1, 9), generator=generator)
    hidden = unroll(model, features, tokens, torch.tensor([[2, 5]]), 3)
    torch.logsumexp(model.lm_head(hidden), -1).sum().backward()
    for name, weight in model.named_parameters():
        has_gradient = weight.grad is not None and bool(weight.grad.abs().sum() > 0)
        assert has_gradient == (name != "embed_tokens.weight"), name


@pytest.mark.parametrize("anchor", [0, 10])
def test_anchors_that_have_no_chain_are_refused(anchor):
    model = random_head(tiny_spec())
    with pytest.raises(
        ValueError, match=r"anchors must be in \[1, 9\] for 3 steps of 12 tokens.*got anchors"
    ):
        unroll(model, torch.zeros(1, 12, 2 * WIDTH), torch.zeros(1, 12).long(), torch.tensor([[anchor]]), 3)


def test_draft_ids_are_offsets_from_the_targets():
    model = random_head(tiny_spec(draft_vocab_size=len(DRAFT_TOKENS)))
    # the fourth draft token is the target's 7: offset 7 - 3 = 4
    assert model.d2t[3] == 4
    assert torch.equal(model.target_ids(torch.arange(len(DRAFT_TOKENS))), DRAFT_TOKENS)


def test_tables_of_the_target_are_shared_and_frozen():
    model = Eagle3Model(tiny_spec())
    assert model.embed_tokens.weight.is_meta
    assert model.lm_head.weight.is_meta
    table, head = torch.zeros(VOCAB, WIDTH), torch.zeros(VOCAB, WIDTH)
    model.share(table, head)
    assert model.embed_tokens.weight.data_ptr() == table.data_ptr()
    assert model.lm_head.weight.data_ptr() == head.data_ptr()
    assert not model.embed_tokens.weight.requires_grad
    assert not model.lm_head.weight.requires_grad


def test_what_is_not_an_eagle3_head_is_refused():
    with pytest.raises(ValueError, match="kind eagle3, got dflash"):
        Eagle3Model(tiny_spec(kind="dflash", mask_token_id=3))
    with pytest.raises(ValueError, match="must have 1 layer with full attention.*got 2 layers"):
        Eagle3Model(tiny_spec(num_layers=2))
    with pytest.raises(ValueError, match="norm_before_fc and fc_norm both"):
        Eagle3Norms(before_fc=True, each_feature=True)
