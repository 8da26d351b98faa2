"""One call over ragged rows and pages equals the padded SDPA path, and is the call that torch has."""

import inspect

import pytest
import torch

from dspark.models import attention_varlen
from dspark.models.attention import _attend_sdpa
from dspark.models.attention_varlen import missing_parameters, window_bounds
from dspark.models.attention_varlen_reference import varlen_attn_reference
from dspark.models.base import PassRow
from dspark.models.kv_cache import CacheShape, KVCache
from dspark.models.layout import build_layout
from dspark.models.layout_varlen import build_varlen_layout

DIM = 8


def random_cache(lengths, *, kv_heads, page_size, generator):
    """A cache of rows of (start, new) tokens, filled with noise, pages handed out in random order."""
    shape = CacheShape(num_layers=1, num_kv_heads=kv_heads, head_dim=DIM, value_dim=DIM)
    most = max(start + new for start, new in lengths)
    cache = KVCache(
        shape,
        num_slots=len(lengths),
        max_tokens=most,
        dtype=torch.float32,
        device=torch.device("cpu"),
        page_size=page_size,
    )
    for slot in torch.randperm(len(lengths), generator=generator).tolist():
        assert cache.reserve(slot, sum(lengths[slot]))
    for pages in (cache.keys[0], cache.values[0]):  # stale entries everywhere, also past the rows' ends
        pages.copy_(torch.randn(pages.shape, generator=generator))
    return cache


def by_sdpa(rows, cache, queries, window):
    layout = build_layout(rows, cache, pad_tokens=0, pad_logits=0)
    outputs = []
    for group in layout.groups:
        if group.slot_range is None:
            keys, values = cache.read_index(0, group.key_index)
        else:
            keys, values = cache.read_range(0, *group.slot_range, group.num_keys)
        out = _attend_sdpa(group.gather_queries(queries), keys, values, group, window, 0.3, None, None)
        outputs.append(group.scatter_outputs(out))
    return torch.cat(outputs)


def by_varlen(kernel, rows, cache, queries, window):
    layout = build_varlen_layout(rows, cache)
    return kernel(
        queries,
        cache.keys[0],
        cache.values[0],
        layout.cu_seq_q,
        layout.cu_seq_k,
        layout.shape.max_q,
        layout.max_k,
        scale=0.3,
        window_size=window_bounds(window),
        enable_gqa=True,
        seqused_k=layout.seqused_k,
        block_table=layout.block_table,
        num_splits=1,
    )


@pytest.mark.parametrize("page_size", [1, 16, 256])
@pytest.mark.parametrize("window", [None, 1, 5])
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (3, 3), (4, 1)])
def test_the_reference_equals_the_padded_path_over_random_ragged_layouts(page_size, window, heads, kv_heads):
    generator = torch.Generator().manual_seed(page_size + 10 * heads)
    for _ in range(8):
        count = int(torch.randint(1, 7, (1,), generator=generator))
        starts = torch.randint(0, 60, (count,), generator=generator).tolist()
        news = torch.randint(1, 40, (count,), generator=generator).tolist()
        lengths = list(zip(starts, news, strict=True))
        cache = random_cache(lengths, kv_heads=kv_heads, page_size=page_size, generator=generator)
        rows = [
            PassRow(slot=slot, start=start, token_ids=[0] * new, num_logits=0)
            for slot, (start, new) in enumerate(lengths)
        ]
        queries = torch.randn(sum(news), heads, DIM, generator=generator)
        got = by_varlen(varlen_attn_reference, rows, cache, queries, window)
        torch.testing.assert_close(got, by_sdpa(rows, cache, queries, window), atol=1e-5, rtol=1e-5)


def call(query, key, value, cu_seq_q, seqused_k, block_table, **options):
    """The reference over small lists: one head of one number, scale 1."""
    counts = torch.tensor(seqused_k, dtype=torch.int32)
    return varlen_attn_reference(
        torch.tensor(query).view(-1, 1, 1),
        torch.tensor(key).view(len(key), -1, 1, 1),
        torch.tensor(value).view(len(value), -1, 1, 1),
        torch.tensor(cu_seq_q, dtype=torch.int32),
        torch.cat([torch.zeros(1, dtype=torch.int32), counts.cumsum(0, dtype=torch.int32)]),
        8,
        8,
        scale=1.0,
        seqused_k=counts,
        block_table=torch.tensor(block_table, dtype=torch.int32),
        **options,
    ).flatten()


def test_the_definition_by_hand():
    """Queries 0 weigh all seen keys alike, so outputs are means of the seen values."""
    pages = [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    values = [[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]]
    # row 0: pages 2, 0 hold 100, 200, 1 (the fourth is not used); its 2 queries stand at keys 1 and 2
    # row 1: page 1 holds 10; its query stands at key 0
    arguments = ([0.0, 0.0, 0.0], pages, values, [0, 2, 3], [3, 1], [[2, 0], [1, 0]])
    causal = call(*arguments, window_size=(-1, 0))
    assert causal.tolist() == pytest.approx([(100 + 200) / 2, (100 + 200 + 1) / 3, 10])
    sliding = call(*arguments, window_size=window_bounds(2))
    assert sliding.tolist() == pytest.approx([(100 + 200) / 2, (200 + 1) / 2, 10])
    alone = call(*arguments, window_size=window_bounds(1))
    assert alone.tolist() == pytest.approx([200, 1, 10])


def test_queries_that_see_no_key_or_belong_to_no_row_get_zeros():
    pages, values = [[0.0, 0.0]], [[5.0, 7.0]]
    # row 0: 3 queries, 1 key: only the last query stands at a key; row 1 is empty; query 3 is nobody's
    out = call([0.0] * 4, pages, values, [0, 3, 3], [1, 0], [[0], [0]], window_size=(-1, 0))
    assert out.tolist() == [0.0, 0.0, 5.0, 0.0]


def test_the_kernel_is_called_by_its_own_signature(tiny_llama, monkeypatch):
    """Every argument binds to the installed ``varlen_attn``, whose place the reference then takes."""
    from torch.nn.attention import varlen

    from dspark.models.target import load_target

    signature, calls = inspect.signature(varlen.varlen_attn), []

    def stand_in(*args, **kwargs):
        bound = signature.bind(*args, **kwargs).arguments
        calls.append(bound)
        return varlen_attn_reference(*args, **kwargs)

    monkeypatch.setattr(varlen, "varlen_attn", stand_in)
    target = load_target(tiny_llama, attention="varlen_reference")
    target.model.set_attn_implementation(attention_varlen.NAME)
    cache = target.new_cache(2, 40)
    rows = [
        PassRow(slot=0, start=0, token_ids=[1, 2, 3], num_logits=1),
        PassRow(slot=1, start=0, token_ids=[4], num_logits=1),
    ]
    calls.clear()
    target.forward(rows, cache)
    assert len(calls) == target.cache_shape.num_layers
    for arguments in calls:
        assert arguments["num_splits"] == 1
        assert arguments["window_size"] == (-1, 0)
        assert arguments["enable_gqa"]  # 4 heads on 2
        assert arguments["cu_seq_q"].tolist() == [0, 3, 4]
        assert arguments["seqused_k"].tolist() == [3, 1]
        assert arguments["block_table"].tolist() == [[0], [1]]
        assert (arguments["max_q"], arguments["max_k"]) == (3, 256)
        kinds = {arguments[name].dtype for name in ("cu_seq_q", "cu_seq_k", "seqused_k", "block_table")}
        assert kinds == {torch.int32}


def test_a_torch_without_paged_varlen_is_recognised():
    from torch.nn.attention.varlen import varlen_attn

    def older(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale=None, window_size=(-1, -1)):
        pass

    assert missing_parameters(varlen_attn) is None
    assert missing_parameters(older) == (
        f"varlen_attn of torch {torch.__version__} lacks block_table, enable_gqa, num_splits, seqused_k"
    )
