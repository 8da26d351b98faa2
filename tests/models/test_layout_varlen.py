"""The integers of a pass: their values by hand, one block, and filled again."""

import pytest
import torch

from dspark.models.base import PassRow
from dspark.models.kv_cache import CacheShape, KVCache
from dspark.models.layout_varlen import build_varlen_layout, empty_layout

SHAPE = CacheShape(num_layers=1, num_kv_heads=1, head_dim=4, value_dim=4)


def make_cache(**kwargs):
    sizes = {"num_slots": 3, "max_tokens": 10, "page_size": 4, **kwargs}
    return KVCache(SHAPE, dtype=torch.float32, device=torch.device("cpu"), **sizes)


def test_the_layout_of_two_rows_by_hand():
    cache = make_cache()
    assert cache.reserve(2, 9)  # pages 0, 1, 2
    assert cache.reserve(0, 4)  # page 3
    rows = [
        PassRow(slot=0, start=1, token_ids=[7, 8], num_logits=1),
        PassRow(slot=2, start=6, token_ids=[4, 5, 6], num_logits=2),
    ]
    layout = build_varlen_layout(rows, cache)
    assert layout.token_ids.tolist() == [[7, 8, 4, 5, 6]]
    assert layout.positions.tolist() == [[1, 2, 6, 7, 8]]
    # slot 0, page 3: 3*4+1, 3*4+2; slot 2: token 6 is 2 into page 1, 7 is 3 into it, 8 is 0 into page 2
    assert layout.write_index.tolist() == [13, 14, 6, 7, 8]
    assert layout.logits_index.tolist() == [1, 3, 4]
    assert layout.cu_seq_q.tolist() == [0, 2, 5]
    assert layout.seqused_k.tolist() == [3, 9]
    assert layout.cu_seq_k.tolist() == [0, 3, 12]
    assert layout.block_table.tolist() == [[3, 3, 3], [0, 1, 2]]  # past a row's end: its own first page
    assert layout.shape.max_q == 3
    assert layout.max_k == 12  # 3 pages of 4


def test_all_tensors_are_views_of_one_block():
    layout = build_varlen_layout(
        [PassRow(slot=0, start=0, token_ids=[1], num_logits=1)], make_cache(page_size=None)
    )
    block = layout.block.untyped_storage().data_ptr()
    names = layout.shape.fields()
    assert all(getattr(layout, name).untyped_storage().data_ptr() == block for name in names)
    # 4 integers of 8 bytes, cu_seq_q and cu_seq_k of 2 and seqused_k and block_table of 1 at 4 bytes
    assert layout.block.numel() == 4 * 8 + (2 + 2 + 1 + 1) * 4


def test_a_pass_without_logits_still_has_an_index():
    layout = build_varlen_layout(
        [PassRow(slot=0, start=0, token_ids=[1, 2], num_logits=0)], make_cache(page_size=None)
    )
    assert layout.logits_index.tolist() == [1]


def test_filling_again_keeps_the_addresses():
    cache = make_cache(page_size=None)
    first = [PassRow(slot=0, start=0, token_ids=[1, 2], num_logits=1)]
    layout = build_varlen_layout(first, cache)
    before = {name: getattr(layout, name).data_ptr() for name in layout.shape.fields()}
    layout.fill([PassRow(slot=2, start=5, token_ids=[3, 4], num_logits=0)])
    assert {name: getattr(layout, name).data_ptr() for name in layout.shape.fields()} == before
    assert layout.token_ids.tolist() == [[3, 4]]
    assert layout.positions.tolist() == [[5, 6]]
    assert layout.write_index.tolist() == [25, 26]
    assert layout.logits_index.tolist() == [1]  # the last token stands for a missing logit


def test_rows_of_another_shape_do_not_fit():
    cache = make_cache(page_size=None)
    layout = empty_layout(
        build_varlen_layout([PassRow(slot=0, start=0, token_ids=[1], num_logits=1)], cache).shape, cache
    )
    with pytest.raises(AssertionError, match="2 tokens in a pass of 1"):
        layout.fill([PassRow(slot=0, start=0, token_ids=[1, 2], num_logits=1)])


def test_the_scratch_slot_has_pages_of_its_own():
    cache = make_cache(scratch_tokens=6)  # 3 slots of 3 pages; 6 tokens need 2 more
    assert cache.scratch_slot == 3
    assert cache.pages(3) == [9, 10]
    assert cache.keys[0].shape[0] == 11
    owned = []
    for slot in range(3):
        assert cache.reserve(slot, 10)
        owned += cache.pages(slot)
    assert sorted(owned) == list(range(9))
    assert not cache.num_free_tokens()
    assert cache.table_width == 3
    assert make_cache(max_tokens=4, scratch_tokens=6).table_width == 2  # the scratch slot is the longest
    one_page = make_cache(page_size=None, scratch_tokens=6)
    assert one_page.one_page_a_row
    assert one_page.pages(3) == [3]
