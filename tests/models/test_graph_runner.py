"""The bookkeeping of captured passes, with captures that run on a CPU."""

import gc
import logging
import weakref

import pytest
import torch

from dspark.models.base import PassRow
from dspark.models.cuda_graphs import GraphRunner
from dspark.models.graph_buckets import MAX_ROW_TOKENS, ROW_BUCKETS, TOKEN_BUCKETS, Bucket, bucket_of
from dspark.models.graph_probe import install_graphs
from dspark.models.kv_cache import KVCache
from dspark.models.target import load_target

SLOTS, LONGEST = 6, 120


def repeat(work):
    """A capture without a graph: warm-ups as in the real one, then the function again at each replay."""
    for _ in range(3):
        work()
    return work


@pytest.fixture(scope="module")
def target(tiny_llama):
    return load_target(tiny_llama, attention="varlen_reference")


def make_runner(target, capture=repeat):
    return GraphRunner(target.logits_of, capture, vocab_size=target.vocab_size)


def make_cache(target, *, page_size=16, slots=SLOTS, longest=LONGEST):
    return KVCache(
        target.cache_shape,
        num_slots=slots,
        max_tokens=longest,
        dtype=target.dtype,
        device=target.device,
        page_size=page_size,
        scratch_tokens=MAX_ROW_TOKENS,
    )


def row(slot, start, count, num_logits=1):
    return PassRow(slot=slot, start=start, token_ids=list(range(count)), num_logits=num_logits)


def test_padding_always_fits_one_row_and_the_scratch_slot():
    smaller = (0, *TOKEN_BUCKETS)
    assert max(b - a for a, b in zip(smaller, TOKEN_BUCKETS, strict=False)) - 1 < MAX_ROW_TOKENS
    assert list(TOKEN_BUCKETS) == sorted(set(TOKEN_BUCKETS))
    assert TOKEN_BUCKETS[-1] == ROW_BUCKETS[-1] == 512


@pytest.mark.parametrize(
    ("counts", "bucket"),
    [
        ([1], Bucket(1, 1)),
        ([1, 1, 1], Bucket(4, 4)),
        ([5, 1], Bucket(8, 2)),
        ([3] * 5, Bucket(16, 8)),
        ([64], Bucket(64, 1)),
        ([65], None),  # a long row is prefill
        ([60, 5], Bucket(80, 2)),
        ([64] * 6, Bucket(384, 8)),
    ],
)
def test_the_bucket_is_the_smallest_that_holds_the_pass(target, counts, bucket):
    rows = [row(slot, 0, count) for slot, count in enumerate(counts)]
    assert bucket_of(rows, make_cache(target)) == bucket


def test_large_passes_and_caches_without_scratch_run_as_they_are(target):
    cache = make_cache(target, slots=9)
    assert bucket_of([row(slot, 0, 64) for slot in range(8)], cache) == Bucket(512, 8)
    assert bucket_of([row(slot, 0, 57) for slot in range(9)], cache) is None  # 513 tokens
    assert bucket_of([row(0, 0, 1)], target.new_cache(1, 8)) is None


def test_padding_by_hand(target):
    cache = make_cache(target)
    padded = Bucket(8, 4).pad([row(2, 5, 3), row(0, 9, 2)], cache)
    assert [(r.slot, r.start, len(r.token_ids), r.num_logits) for r in padded] == [
        (2, 5, 3, 1),
        (0, 9, 2, 1),
        (SLOTS, 0, 0, 0),
        (SLOTS, 0, 0, 0),
        (SLOTS, 0, 3, 0),  # 8 - 3 - 2 padding tokens in the scratch slot
    ]


class Traffic:
    """Random passes as an engine makes them: rows come, grow, are rewound and go; slots are used again."""

    def __init__(self, caches, vocab_size, seed):
        self.caches, self.vocab_size = caches, vocab_size
        self.generator = torch.Generator().manual_seed(seed)
        self.lengths = {}  # cached tokens by slot

    def draw(self, low, high):
        return int(torch.randint(low, high + 1, (1,), generator=self.generator))

    def next_rows(self):
        for slot in list(self.lengths):
            if self.draw(0, 9) == 0 or self.lengths[slot] > LONGEST - 80:
                del self.lengths[slot]
                for cache in self.caches:
                    cache.release(slot)
        for slot in range(SLOTS):
            if slot not in self.lengths and self.draw(0, 2) == 0:
                self.lengths[slot] = 0
                assert all(cache.reserve(slot, LONGEST) for cache in self.caches)
        rows = []
        for slot in sorted(self.lengths):
            if rows and self.draw(0, 3) == 0:
                continue  # not in this pass
            start = self.draw(max(0, self.lengths[slot] - 5), self.lengths[slot])  # rewound by up to 5
            new = self.draw(60, 70) if self.draw(0, 15) == 0 else self.draw(1, 9)
            tokens = torch.randint(self.vocab_size, (new,), generator=self.generator).tolist()
            rows.append(PassRow(slot=slot, start=start, token_ids=tokens, num_logits=self.draw(0, new)))
            self.lengths[slot] = start + new
        return rows or self.next_rows()


def test_two_hundred_random_passes_equal_the_uncaptured_ones(target):
    runner, captured, plain = make_runner(target), make_cache(target), make_cache(target)
    traffic = Traffic([captured, plain], target.vocab_size, seed=0)
    buckets, num_eager = set(), 0
    with torch.inference_mode():
        for _ in range(200):
            rows = traffic.next_rows()
            index = [
                at for r in rows for at in captured.token_index(r.slot, r.start, r.start + len(r.token_ids))
            ]
            others = torch.ones(captured.num_pages * 16, dtype=torch.bool)
            others[index] = False
            before = [pages.clone() for pages in (*captured.keys, *captured.values)]
            wanted = target.forward(rows, plain)
            result = runner.run(rows, captured)
            if result is None:
                assert max(len(r.token_ids) for r in rows) > MAX_ROW_TOKENS
                num_eager += 1
                got = target.forward(rows, captured)
            else:
                buckets.add(bucket_of(rows, captured))
                got = result[0]
            assert got.shape == (sum(r.num_logits for r in rows), target.vocab_size)
            torch.testing.assert_close(got, wanted, atol=2e-4, rtol=1e-4)
            for old, new in zip(before, (*captured.keys, *captured.values), strict=True):
                live = slice(0, captured.num_pages)  # the scratch pages lie behind them
                assert torch.equal(old[live].flatten(0, 1)[others], new[live].flatten(0, 1)[others])
    assert runner.num_captures == len(buckets)
    assert num_eager > 5
    assert len(buckets) > 5
    assert 200 - num_eager > 5 * len(buckets), "most passes should be replays"


def test_both_caches_agree_after_the_traffic(target):
    """Keys and values of the rows, not only logits: both ways of running a pass write the same."""
    runner, captured, plain = make_runner(target), make_cache(target), make_cache(target)
    traffic = Traffic([captured, plain], target.vocab_size, seed=1)
    with torch.inference_mode():
        for _ in range(30):
            rows = traffic.next_rows()
            target.forward(rows, plain)
            if runner.run(rows, captured) is None:
                target.forward(rows, captured)
    for slot, length in traffic.lengths.items():
        a, b = (torch.tensor([cache.token_index(slot, 0, length)]) for cache in (captured, plain))
        for layer in range(target.cache_shape.num_layers):
            pairs = zip(captured.read_index(layer, a), plain.read_index(layer, b), strict=True)
            for x, y in pairs:
                torch.testing.assert_close(x, y, atol=2e-4, rtol=1e-4)


def test_logits_outlive_the_next_replay(target):
    runner, cache = make_runner(target), make_cache(target)
    assert cache.reserve(0, 20)
    with torch.inference_mode():
        first, _ = runner.run([row(0, 0, 3, 3)], cache)
        kept = first.clone()
        second, _ = runner.run([PassRow(slot=0, start=3, token_ids=[9, 8, 7], num_logits=3)], cache)
    assert torch.equal(first, kept)
    assert not torch.equal(first, second)


def test_a_replay_reads_its_inputs_from_where_they_were_at_capture(target):
    """A graph is bound to addresses: the runner must refill the tensors that were captured."""
    seen = []

    def addresses(work):
        work()
        return work

    def forward(layout):
        fields = layout.shape.fields()
        seen.append((id(layout), {name: getattr(layout, name).data_ptr() for name in fields}))
        return target.logits_of(layout)

    runner = GraphRunner(forward, addresses, vocab_size=target.vocab_size)
    cache = make_cache(target)
    assert cache.reserve(0, 20)
    assert cache.reserve(4, 20)
    with torch.inference_mode():
        for rows in ([row(0, 0, 2)], [row(4, 1, 2)], [row(0, 2, 2)]):
            runner.run(rows, cache)
    assert len(seen) == 4  # one at the capture, three at the replays
    assert all(each == seen[0] for each in seen)


def test_each_cache_has_graphs_of_its_own_and_they_go_with_it(target):
    runner = make_runner(target)
    caches = [make_cache(target) for _ in range(2)]
    with torch.inference_mode():
        for cache in caches:
            assert cache.reserve(0, 8)
            runner.run([row(0, 0, 2)], cache)
            runner.run([row(0, 2, 2)], cache)
    assert runner.num_captures == 2
    gone = weakref.ref(caches.pop())
    del cache
    gc.collect()  # not for the cache: for what the loop variable's frame may hold
    assert gone() is None
    assert len(runner._captured) == 1


def test_the_buffers_of_logits_are_shared_by_size(target):
    runner, cache = make_runner(target), make_cache(target)
    for slot in range(SLOTS):
        assert cache.reserve(slot, LONGEST)
    with torch.inference_mode():
        for count in (17, 25, 33, 9, 30):  # buckets 24, 32, 40, 16, 32: size classes 32, 32, 64, 16, 32
            runner.run([row(0, 0, count)], cache)
    assert sorted(runner._outputs) == [16, 32, 64]
    assert runner.num_captures == 4


def fail(work):
    raise RuntimeError("operation not permitted when stream is capturing\nmore lines")


def stale(work):
    """A capture that never runs again, as if it read copies of its inputs."""
    work()
    return lambda: None


def test_captures_that_fail_are_left_out_with_one_line_or_refused(target, caplog):
    with caplog.at_level(logging.WARNING):
        assert install_graphs(target, None, capture=fail) is None
    assert [record.getMessage() for record in caplog.records] == [
        "passes run without CUDA graphs: the pass cannot be captured (operation not permitted when stream is "
        "capturing)"
    ]
    with pytest.raises(
        ValueError, match=r"cuda_graphs=true cannot serve .*: the pass cannot be captured"
    ) as caught:
        install_graphs(target, True, capture=fail)
    assert "\n" not in str(caught.value)


def test_captures_that_replay_something_else_are_found_out(target):
    with pytest.raises(ValueError, match="a replayed pass gives other logits than the pass itself"):
        install_graphs(target, True, capture=stale)


def test_graphs_are_installed_where_they_work_and_wanted(target):
    assert install_graphs(target, None, capture=repeat).num_captures == 1
    assert install_graphs(target, False, capture=repeat) is None
    assert install_graphs(target, None) is None  # no CUDA here
    with pytest.raises(ValueError, match="cuda_graphs=true needs attention=varlen on a CUDA device, got"):
        install_graphs(target, True)


def test_asking_for_graphs_on_a_cpu_is_refused_at_load(tiny_llama):
    with pytest.raises(
        ValueError, match="cuda_graphs=true needs attention=varlen on a CUDA device, got dspark on cpu"
    ):
        load_target(tiny_llama, device="cpu", cuda_graphs=True)
