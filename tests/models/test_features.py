"""Features are the model's own hidden states, on both paths and for every token of a ragged pass."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from dspark.models.base import EMBEDDING, PassRow
from dspark.models.synthetic import make_synthetic_target
from dspark.models.target import load_target

TAPS = (2, EMBEDDING, 0)  # any order; three layers, the last one left out as DeepSpec does
NEW = (5, 1, 40)


@pytest.fixture(scope="module", params=["llama", "qwen3", "gemma2", "gemma3"])
def folder(request, tmp_path_factory):
    return make_synthetic_target(
        tmp_path_factory.mktemp(request.param), family=request.param, num_layers=4, seed=3
    )


@pytest.mark.parametrize("kernels", ["auto", "torch"])
def test_features_are_the_models_hidden_states(folder, kernels):
    target = load_target(folder, kernels=kernels)
    rows = [[(7 * i + 11 * j) % 250 for j in range(12 + n)] for i, n in enumerate(NEW)]
    cache = target.new_cache(3, 64)
    head = [PassRow(slot=i, start=0, token_ids=row[:12], num_logits=0) for i, row in enumerate(rows)]
    tail = [PassRow(slot=i, start=12, token_ids=row[12:], num_logits=1) for i, row in enumerate(rows)]
    _, first = target.forward_with_features(head, cache, TAPS)
    logits, second = target.forward_with_features(tail, cache, TAPS)
    eager = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    hidden_size = target.model.config.get_text_config().hidden_size
    assert first.shape == (36, 3 * hidden_size)
    for i, row in enumerate(rows):
        with torch.inference_mode():
            out = eager(torch.tensor([row]), output_hidden_states=True)
        # transformers: hidden_states[0] is what enters the first layer, [l + 1] the output of layer l
        own = torch.cat([out.hidden_states[layer + 1][0] for layer in TAPS], dim=-1)
        ours = torch.cat([first[12 * i : 12 * (i + 1)], second[sum(NEW[:i]) : sum(NEW[: i + 1])]])
        torch.testing.assert_close(ours, own, atol=2e-4, rtol=1e-4)
        torch.testing.assert_close(logits[i], out.logits[0, -1], atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("kernels", ["auto", "torch"])
def test_taps_leave_nothing_behind(folder, kernels):
    """A pass without taps after one with them: the same logits, and no writes to a freed feature."""
    target = load_target(folder, kernels=kernels)
    row = [PassRow(slot=0, start=0, token_ids=[1, 2, 3, 4], num_logits=4)]
    plain = target.forward(row, target.new_cache(1, 8))
    cache = target.new_cache(1, 8)
    tapped, features = target.forward_with_features(row, cache, (1,))
    kept = features.clone()
    assert torch.equal(target.forward(row, cache), plain)
    assert torch.equal(tapped, plain)
    assert torch.equal(features, kept)


@pytest.mark.parametrize("layers", [(4,), (-2,), (1, 1)])
def test_layers_that_are_not_there_are_refused(folder, layers):
    target = load_target(folder)
    with pytest.raises(ValueError, match="feature layers must be different ones of -1 .* to 3"):
        target.forward_with_features([], target.new_cache(1, 8), layers)
