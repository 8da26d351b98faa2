"""The fast product equals the reference; the invariant row multiple really is invariant."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dspark.models.fused import FusedPart, install_fused_projections
from dspark.models.linear import (
    RowLinear,
    RowThresholds,
    install_row_linears,
    invariant_multiple,
    measure_thresholds,
    transposed_linear,
)


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("bias", [False, True])
def test_transposed_product_equals_the_reference(rows, bias):
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(1, rows, 48, generator=generator)
    weight = torch.randn(32, 48, generator=generator)
    b = torch.randn(32, generator=generator) if bias else None
    got = transposed_linear(x, weight, b)
    assert got.shape == (1, rows, 32)
    assert got.is_contiguous()
    torch.testing.assert_close(got, F.linear(x, weight, b), atol=1e-5, rtol=1e-5)


def test_layer_switches_at_its_threshold_and_shares_weights():
    linear = nn.Linear(8, 4).requires_grad_(False)
    model = nn.Sequential(linear, nn.Sequential(nn.Linear(4, 4).requires_grad_(False)))
    install_row_linears(model, RowThresholds(transposed_up_to=4))
    fast = model[0]
    assert isinstance(fast, RowLinear)
    assert isinstance(model[1][0], RowLinear)
    assert fast.weight is linear.weight
    for rows in (1, 4, 5, 9):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(fast(x), linear(x))
    assert fast.thresholds.use_transposed(4)
    assert not fast.thresholds.use_transposed(5)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 20])
def test_fused_projections_equal_their_own_and_hold_the_weights_once(rows, bias):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj = nn.Linear(24, 32, bias=bias)
            self.k_proj = nn.Linear(24, 8, bias=bias)
            self.v_proj = nn.Linear(24, 8, bias=bias)
            self.o_proj = nn.Linear(32, 24, bias=bias)

    block = Attention().requires_grad_(False)
    plain = {name: (child.weight.clone(), child.bias) for name, child in block.named_children()}
    install_fused_projections(block, RowThresholds(transposed_up_to=8))
    assert isinstance(block.q_proj, FusedPart)
    assert isinstance(block.o_proj, nn.Linear)
    storages = {
        getattr(block, name).weight.untyped_storage().data_ptr() for name in ("q_proj", "k_proj", "v_proj")
    }
    assert len(storages) == 1
    for seed in range(2):
        x = torch.randn(1, rows, 24, generator=torch.Generator().manual_seed(seed))
        for order in (("q_proj", "k_proj", "v_proj"), ("v_proj", "q_proj", "q_proj")):
            for name in order:
                got = getattr(block, name)(x)
                assert got.is_contiguous()
                weight, own_bias = plain[name]
                torch.testing.assert_close(got, F.linear(x, weight, own_bias))
    x += 1.0  # the same tensor with other content, after every part was taken or not
    torch.testing.assert_close(block.q_proj(x.clone()), F.linear(x, *plain["q_proj"]))


def test_measured_thresholds_are_one_of_the_measured_counts():
    layers = [nn.Linear(256, 256, bias=False).requires_grad_(False) for _ in range(4)]
    assert measure_thresholds(layers, repeats=3).transposed_up_to in (0, 2, 4, 8, 16, 32, 64, 128, 256)


def test_invariant_multiple_gives_a_row_the_same_bits_in_any_pass():
    shapes = {(64, 48), (96, 64)}
    multiple = invariant_multiple(shapes)
    generator = torch.Generator().manual_seed(1)
    for out, inner in shapes:
        weight = torch.randn(out, inner, generator=generator)
        row = torch.randn(1, inner, generator=generator)
        alone = F.linear(F.pad(row, (0, 0, 0, multiple - 1)), weight)[0]
        for count in range(1, 9):
            crowd = torch.randn(count * multiple, inner, generator=generator)
            place = int(torch.randint(count * multiple, (1,), generator=generator))
            crowd[place] = row
            assert torch.equal(F.linear(crowd, weight)[place], alone)


def test_no_invariant_multiple_is_an_error_that_names_the_way_out():
    with pytest.raises(ValueError, match="numerics=invariant needs a row count.*use numerics=fast"):
        invariant_multiple({(64, 48)}, candidates=())
