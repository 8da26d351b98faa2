"""The cache stores what was written, shares a pool of pages, and rewinds by starting lower."""

import pytest
import torch

from dspark.models.kv_cache import CacheShape, KVCache

SHAPE = CacheShape(num_layers=2, num_kv_heads=3, head_dim=4, value_dim=4)


def make_cache(**kwargs) -> KVCache:
    sizes = {"num_slots": 3, "max_tokens": 10} | kwargs
    return KVCache(SHAPE, dtype=torch.float32, device=torch.device("cpu"), **sizes)


def write(cache: KVCache, slot: int, start: int, values: torch.Tensor) -> None:
    index = torch.tensor(cache.token_index(slot, start, start + len(values)))
    content = values[:, None, None].expand(-1, 3, 4)
    for layer in range(2):
        cache.write(layer, index, content, -content)


def read(cache: KVCache, slot: int, count: int) -> torch.Tensor:
    index = torch.tensor([cache.token_index(slot, 0, count)])
    keys, values = cache.read_index(1, index)
    assert torch.equal(keys, -values)
    return keys[0, 0, :, 0]


@pytest.mark.parametrize("page_size", [None, 1, 3, 4])
def test_rows_read_back_what_they_wrote_whatever_the_page_size(page_size):
    cache = make_cache(page_size=page_size)
    for slot in (2, 0, 1):
        assert cache.reserve(slot, 10)
        write(cache, slot, 0, torch.arange(10.0) + 100 * slot)
    for slot in range(3):
        assert read(cache, slot, 10).tolist() == [100.0 * slot + i for i in range(10)]


@pytest.mark.parametrize("page_size", [None, 3])
def test_rewind_is_starting_lower(page_size):
    cache = make_cache(page_size=page_size)
    assert cache.reserve(0, 10)
    write(cache, 0, 0, torch.arange(8.0))
    write(cache, 0, 5, torch.tensor([50.0, 60.0]))  # tokens 5 to 7 were rejected
    assert read(cache, 0, 7).tolist() == [0, 1, 2, 3, 4, 50, 60]


@pytest.mark.parametrize("page_size", [None, 3])
def test_a_row_can_begin_like_another(page_size):
    cache = make_cache(page_size=page_size)
    for slot in (0, 2):
        assert cache.reserve(slot, 10)
        write(cache, slot, 0, torch.arange(10.0) + 100 * (slot + 1))
    cache.copy_tokens(0, 2, 7)
    assert read(cache, 2, 10).tolist() == [*(100.0 + i for i in range(7)), *(300.0 + i for i in range(7, 10))]
    assert read(cache, 0, 10).tolist() == [100.0 + i for i in range(10)]


def test_pool_refuses_what_it_does_not_have_and_takes_pages_back():
    cache = make_cache(page_size=4, num_pages=3)
    assert cache.reserve(0, 8)  # 2 pages
    assert cache.num_free_tokens() == 4
    assert not cache.reserve(1, 5)  # needs 2
    assert cache.num_free_tokens() == 4, "a refused reservation takes nothing"
    assert cache.reserve(0, 7), "pages it owns already serve"
    cache.release(0)
    assert cache.num_free_tokens() == 12
    assert cache.reserve(1, 10)


@pytest.mark.parametrize("page_size", [None, 4])
def test_a_released_row_leaves_nothing_behind(page_size):
    """An overflow of the former row would reach the next one as 0 times infinity."""
    cache = make_cache(page_size=page_size)
    assert cache.reserve(0, 10)
    write(cache, 0, 0, torch.full((10,), torch.inf))
    cache.release(0)
    assert all(bool((layer == 0).all()) for layer in (*cache.keys, *cache.values))


def test_neighbouring_rows_are_one_view_without_a_copy():
    cache = make_cache()
    keys, _ = cache.read_range(0, 1, 3, 6)
    assert keys.shape == (2, 3, 6, 4)
    assert keys.untyped_storage().data_ptr() == cache.keys[0].untyped_storage().data_ptr()


def test_bytes_per_token():
    # 2 layers x 3 heads x (4 + 4) numbers x 4 bytes
    assert SHAPE.bytes_per_token(torch.float32) == 192


def test_an_empty_cache_is_refused():
    with pytest.raises(ValueError, match="at least 1 row of 1 token, got 0 rows of 10"):
        make_cache(num_slots=0)
