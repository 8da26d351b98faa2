"""The fast searches and the plain loops decide alike, jagged curves and ties included."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from dspark.policies.search import arg_max, buckets, early_stop, rank, reference, throughput
from tests.policies.listed_cost import ListedCost
from tests.policies.random_batches import random_batches


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_random_batches_equal_the_loops(step_context, count):
    contexts = {num_rows: step_context(num_rows) for num_rows in range(1, 7)}
    num_apart = 0
    for batch in random_batches(seed=0, count=count):
        ctx = dataclasses.replace(contexts[len(batch.lengths)], cost=ListedCost(seconds=batch.seconds))
        survival = torch.tensor(batch.survival, dtype=torch.float64)
        ranking = rank(survival, torch.tensor(batch.lengths))
        values = throughput(ctx, ranking, torch.tensor(0))
        accepted = throughput(ctx, ranking, torch.tensor(0), with_bonus=False)
        drafted = min(sum(batch.lengths), int(ranking.num_candidates))
        sizes = sorted({-(-drafted * share // 4) for share in (1, 2, 3, 4)})
        found = {
            "early": ranking.lengths(early_stop(values, ranking.num_candidates)),
            "best": ranking.lengths(arg_max(values, ranking.num_candidates)),
            "bucket": ranking.lengths(buckets(accepted, torch.tensor(sizes))),
        }
        question = (batch.survival, batch.lengths, batch.seconds.__getitem__)
        by_loop = {
            "early": reference.algorithm_1(*question),
            "best": reference.retrospective(*question),
            "bucket": reference.bucketed(*question, sizes),
        }
        assert {name: lengths.tolist() for name, lengths in found.items()} == by_loop, batch
        num_apart += by_loop["early"] != by_loop["best"]
    assert num_apart > count / 10, "curves on which the two searches part are what the test is about"


def test_a_large_batch_equals_the_loops(step_context):
    """Sums over 2,048 positions are added in the loops' order."""
    generator = torch.Generator().manual_seed(0)
    survival = torch.rand(256, 8, generator=generator, dtype=torch.float64).cumprod(dim=1)
    lengths = [8] * 256
    for slope in (1e-4, 1e-3, 4e-3):
        seconds = [1 + slope * (n - n % 32) for n in range(256 * 9 + 1)]
        ctx = dataclasses.replace(step_context(256), cost=ListedCost(seconds=seconds))
        ranking = rank(survival, torch.tensor(lengths))
        values = throughput(ctx, ranking, torch.tensor(8))
        question = (survival.tolist(), lengths, seconds.__getitem__)
        assert ranking.lengths(early_stop(values)).tolist() == reference.algorithm_1(*question)
        assert ranking.lengths(arg_max(values)).tolist() == reference.retrospective(*question)


@pytest.mark.parametrize(
    ("values", "early", "best"),
    [
        ([1.0], 0, 0),
        ([1.0, 2.0, 3.0], 2, 2),
        ([3.0, 2.0, 1.0], 0, 0),
        ([1.0, 0.9, 1.134], 0, 2),  # arXiv 2607.05147, appendix A
        ([1.0, 2.0, 2.0, 3.0], 1, 3),  # a tie is no improvement
        ([2.0, 2.0, 2.0], 0, 0),  # of equal ones the smallest number
        ([1.0, 2.0, 1.5, 2.0], 1, 1),
    ],
)
def test_where_each_rule_stops(values, early, best):
    curve = torch.tensor(values, dtype=torch.float64)
    assert (int(early_stop(curve)), int(arg_max(curve))) == (early, best)


def test_a_limit_ends_the_curve():
    curve = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert int(early_stop(curve, torch.tensor(2))) == int(arg_max(curve, torch.tensor(2))) == 2
    assert int(early_stop(curve, torch.tensor(0))) == int(arg_max(curve, torch.tensor(0))) == 0


def test_buckets_see_only_their_sizes():
    curve = torch.tensor([9.0, 1.0, 2.0, 9.0, 2.0])
    assert int(buckets(curve, torch.tensor([1, 2, 4]))) == 2
