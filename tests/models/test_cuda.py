"""On a CUDA device: the kernel against its reference, captured passes against eager ones, the same text."""

import pytest
import torch

from dspark.drafters.draft_model import DraftModelDrafter
from dspark.engine.engine import Engine
from dspark.models import attention_varlen
from dspark.models.attention_varlen import window_bounds
from dspark.models.attention_varlen_reference import varlen_attn_reference
from dspark.models.base import PassRow
from dspark.models.kv_cache import CacheShape, KVCache
from dspark.models.layout_varlen import build_varlen_layout
from dspark.models.target import load_target
from dspark.types import SamplingParams
from dspark.verification import Coupled
from tests.engine.tools import Jagged, outputs, random_prompts

pytestmark = pytest.mark.gpu


def by(kernel, layout, query, window):
    cache = layout.cache
    return kernel(
        query,
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


def random_pass(lengths, device, *, heads=8, kv_heads=2, dim=64):
    """Layout and queries of rows of (start, new) tokens, every page full of noise."""
    generator = torch.Generator(device).manual_seed(0)
    cache = KVCache(
        CacheShape(num_layers=1, num_kv_heads=kv_heads, head_dim=dim, value_dim=dim),
        num_slots=len(lengths),
        max_tokens=1024,
        dtype=torch.bfloat16,
        device=device,
        page_size=attention_varlen.PAGE_TOKENS,
    )
    for pages in (cache.keys[0], cache.values[0]):
        pages.normal_(generator=generator)
    for slot in reversed(range(len(lengths))):
        assert cache.reserve(slot, sum(lengths[slot]))
    rows = [
        PassRow(slot=slot, start=start, token_ids=[0] * new, num_logits=0)
        for slot, (start, new) in enumerate(lengths)
    ]
    layout = build_varlen_layout(rows, cache)
    query = torch.empty(sum(new for _, new in lengths), heads, dim, dtype=torch.bfloat16, device=device)
    return layout, query.normal_(generator=generator)


LENGTHS = [(700, 1), (0, 300), (255, 2), (256, 9), (3, 1)]


@pytest.mark.parametrize("window", [None, 1, 40])
def test_the_kernel_equals_the_reference(cuda, window):
    from torch.nn.attention.varlen import varlen_attn

    layout, query = random_pass(LENGTHS, cuda)
    wanted = by(varlen_attn_reference, layout, query, window)
    # bfloat16 has 8 bits: the kernel rounds the weights and the result, the reference the result alone
    torch.testing.assert_close(by(varlen_attn, layout, query, window), wanted, atol=0.04, rtol=0.02)


def test_the_kernel_gives_a_row_the_same_bits_in_any_company(cuda):
    from torch.nn.attention.varlen import varlen_attn

    layout, query = random_pass(LENGTHS, cuda)
    together = by(varlen_attn, layout, query, None)
    at = 0
    for slot, (start, new) in enumerate(LENGTHS):
        row = PassRow(slot=slot, start=start, token_ids=[0] * new, num_logits=0)
        alone = by(varlen_attn, build_varlen_layout([row], layout.cache), query[at : at + new], None)
        assert torch.equal(alone, together[at : at + new]), slot
        at += new


@pytest.fixture(scope="module")
def models(cuda, tiny_llama, tiny_llama_drafter):
    """Target and draft model in bfloat16, by whether passes are captured."""
    return {
        graphs: [
            load_target(path, dtype="bfloat16", device="cuda", attention="varlen", cuda_graphs=graphs)
            for path in (tiny_llama, tiny_llama_drafter)
        ]
        for graphs in (False, True)
    }


def test_captured_passes_follow_the_eager_ones(models):
    """Rows grow, are rewound and leave; a bucket is captured once."""
    eager, captured = models[False][0], models[True][0]
    caches = [eager.new_cache(4, 600), captured.new_cache(4, 600)]
    generator = torch.Generator().manual_seed(0)
    lengths = [0] * 4
    before = captured.graphs.num_captures
    for step in range(60):
        if step == 30:
            for cache in caches:
                cache.release(1)
            lengths[1] = 0
        assert all(cache.reserve(slot, 600) for cache in caches for slot in range(4))
        rows = []
        for slot in range(4):
            new = int(torch.randint(1, 9, (1,), generator=generator))
            start = max(0, lengths[slot] - step % 3)
            tokens = torch.randint(259, (new,), generator=generator).tolist()
            rows.append(PassRow(slot=slot, start=start, token_ids=tokens, num_logits=new))
            lengths[slot] = start + new
        wanted, got = eager.forward(rows, caches[0]), captured.forward(rows, caches[1])
        torch.testing.assert_close(got, wanted, atol=0.3, rtol=0.1)
    assert 1 <= captured.graphs.num_captures - before <= 6  # 4 to 32 tokens: buckets of 4, 8, 16, 24, 32


def test_the_engine_writes_the_same_text_with_and_without_graphs(models):
    """In bfloat16 a padded product may round a tie otherwise, so that nearly all rows must agree, not all."""
    params = SamplingParams(max_new_tokens=24)
    texts = []
    for target, drafter in models.values():
        engine = Engine(
            target, DraftModelDrafter(drafter), Jagged(), verification=Coupled(), max_batch_size=4
        )
        texts.append(outputs(engine, random_prompts(8), params)[0])
    assert sum(a == b for a, b in zip(*texts, strict=True)) >= 6
