"""Both attention backends equal plain products; the exact one has the same bits in any company."""

import math

import pytest
import torch

from dspark.models.attention import _attend_sdpa, attend_explicit
from dspark.models.attention_exact import _exp, _tanh, attend_exact
from dspark.models.base import PassRow
from dspark.models.kv_cache import CacheShape, KVCache
from dspark.models.layout import build_layout

HEADS, KV_HEADS, DIM = 6, 2, 16


def random_case(seed: int, lengths: list[tuple[int, int]], page_size: int | None = None):
    """Groups of a pass over rows of (start, new) tokens, with a filled cache and queries [N, H, D]."""
    generator = torch.Generator().manual_seed(seed)
    shape = CacheShape(num_layers=1, num_kv_heads=KV_HEADS, head_dim=DIM, value_dim=DIM)
    cache = KVCache(
        shape,
        num_slots=len(lengths),
        max_tokens=64,
        dtype=torch.float32,
        device=torch.device("cpu"),
        page_size=page_size,
    )
    for slot, (start, new) in enumerate(lengths):
        assert cache.reserve(slot, start + new)
        row = torch.Generator().manual_seed(1000 + slot)  # a row's content does not depend on the others
        index = torch.tensor(cache.token_index(slot, 0, start + new))
        size = (start + new, KV_HEADS, DIM)
        cache.write(0, index, torch.randn(size, generator=row), 5 * torch.randn(size, generator=row))
    rows = [
        PassRow(slot=slot, start=start, token_ids=[0] * new, num_logits=0)
        for slot, (start, new) in enumerate(lengths)
    ]
    layout = build_layout(rows, cache, pad_tokens=0, pad_logits=0)
    queries = torch.randn(layout.num_tokens, HEADS, DIM, generator=generator)
    return layout, cache, queries


def attend_all(backend, layout, cache, queries, window=None, softcap=None, sinks=None):
    outputs = []
    for group in layout.groups:
        if group.slot_range is None:
            keys, values = cache.read_index(0, group.key_index)
        else:
            keys, values = cache.read_range(0, *group.slot_range, group.num_keys)
        out = backend(group.gather_queries(queries), keys, values, group, window, 0.3, softcap, sinks)
        outputs.append(group.scatter_outputs(out))
    return torch.cat(outputs)


def reference(layout, cache, queries, lengths, window=None, softcap=None, sinks=None):
    """Row by row, query by query, from the definition."""
    outputs, at = [], 0
    for slot, (start, new) in enumerate(lengths):
        keys, values = cache.read_index(0, torch.tensor([cache.token_index(slot, 0, start + new)]))
        for t in range(start, start + new):
            low = 0 if window is None else max(0, t - window + 1)
            k, v = keys[:, :, low : t + 1], values[:, :, low : t + 1]
            bias = torch.zeros(1, 1, 1, k.shape[2])
            q = queries[at][None, :, None]
            outputs.append(attend_explicit(q, k, v, bias, 0.3, softcap, sinks)[0, :, 0])
            at += 1
    return torch.stack(outputs)


LENGTHS = [(20, 1), (7, 4), (0, 40), (33, 2)]
VARIANTS = {
    "plain": {},
    "sliding": {"window": 5},
    "softcap": {"softcap": 2.0},
    "sinks": {"sinks": torch.linspace(-1, 1, HEADS)},
}


@pytest.mark.parametrize("page_size", [None, 8])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("backend", [_attend_sdpa, attend_exact])
def test_ragged_groups_equal_each_query_on_its_own(backend, variant, page_size):
    layout, cache, queries = random_case(0, LENGTHS, page_size)
    got = attend_all(backend, layout, cache, queries, **VARIANTS[variant])
    wanted = reference(layout, cache, queries, LENGTHS, **VARIANTS[variant])
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_exact_attention_has_the_same_bits_in_any_company(variant):
    layout, cache, queries = random_case(1, LENGTHS)
    together = attend_all(attend_exact, layout, cache, queries, **VARIANTS[variant])
    at = 0
    for slot, (start, new) in enumerate(LENGTHS):
        for j in range(new):  # one query at a time, alone, over exactly the keys it sees
            row = PassRow(slot=slot, start=start + j, token_ids=[0], num_logits=0)
            alone = build_layout([row], cache, pad_tokens=0, pad_logits=0)
            got = attend_all(attend_exact, alone, cache, queries[at : at + 1], **VARIANTS[variant])
            assert torch.equal(got[0], together[at]), (slot, j)
            at += 1


def test_exact_attention_ignores_how_keys_are_ordered_in_memory_and_in_sums():
    """Exact sums have no order: permuting the keys (all visible) changes no bit."""
    layout, cache, queries = random_case(2, [(63, 1)])
    group = layout.groups[0]
    keys, values = cache.read_range(0, 0, 1, 64)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(3))
    q = group.gather_queries(queries)
    first = attend_exact(q, keys, values, group, None, 0.3, None, None)
    second = attend_exact(q, keys[:, :, order], values[:, :, order], group, None, 0.3, None, None)
    assert torch.equal(first, second)


def test_exact_exponential_and_tanh():
    x = -torch.linspace(0, 41.5, 100_001, dtype=torch.float64)
    assert ((_exp(x) - x.exp()).abs() / x.exp()).max() < 1e-14
    assert _exp(torch.tensor([0.0, -math.inf, -1000.0], dtype=torch.float64)).tolist() == [1.0, 0.0, 0.0]
    y = torch.linspace(-8, 8, 10_001, dtype=torch.float64)
    assert (_tanh(y) - y.tanh()).abs().max() < 1e-15


def test_exact_attention_refuses_what_it_cannot_sum_exactly():
    layout, _, queries = random_case(4, [(5, 1)])
    group = layout.groups[0]
    long = torch.zeros(1, KV_HEADS, (1 << 13) + 1, DIM)
    with pytest.raises(ValueError, match="sums exactly over at most 8192 tokens of context.*got 8193"):
        attend_exact(group.gather_queries(queries), long, long, group, None, 1.0, None, None)


def test_exact_attention_bits_do_not_depend_on_the_number_of_threads():
    layout, cache, queries = random_case(5, LENGTHS)
    before = torch.get_num_threads()
    outputs = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            outputs.append(attend_all(attend_exact, layout, cache, queries))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])
