"""The order of positions, and what a budget buys of it."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark.policies.search import rank

PROBABILITY = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


def budgets(survival: list[list[float]], lengths: list[int]) -> list[list[int]]:
    """Verify lengths for every budget from 0 on."""
    ranking = rank(torch.tensor(survival), torch.tensor(lengths))
    return [ranking.lengths(torch.tensor(n)).tolist() for n in range(int(ranking.num_candidates) + 1)]


def test_the_likeliest_position_comes_first():
    assert budgets([[0.9, 0.3], [0.8, 0.7]], [2, 2]) == [[0, 0], [1, 0], [1, 1], [1, 2], [2, 2]]


def test_ties_go_to_the_earlier_position_and_then_to_the_earlier_row():
    assert budgets([[0.5, 0.5], [0.5, 0.5]], [2, 2]) == [[0, 0], [1, 0], [1, 1], [2, 1], [2, 2]]


def test_what_was_not_drafted_or_cannot_survive_is_no_candidate():
    nan = torch.nan
    survival = [[0.9, nan, nan], [0.9, 0.0, 0.0], [0.8, 0.7, 0.6]]
    assert budgets(survival, [1, 3, 2])[-1] == [1, 1, 2]


def test_a_budget_beyond_the_candidates_buys_them_all():
    ranking = rank(torch.tensor([[0.9, 0.0], [0.5, 0.4]]), torch.tensor([2, 2]))
    assert int(ranking.num_candidates) == 3
    assert ranking.lengths(torch.tensor(100)).tolist() == [1, 2]


def test_ranks_are_in_float64():
    """Two survivals that float32 could not tell apart."""
    survival = torch.tensor([[0.5], [0.5 + 1e-12]], dtype=torch.float64)
    assert rank(survival, torch.tensor([1, 1])).lengths(torch.tensor(1)).tolist() == [0, 1]


@settings(deadline=None, max_examples=200)
@given(data=st.data(), num_rows=st.integers(1, 5), width=st.integers(1, 4))
def test_every_budget_is_spent_on_prefixes_whole_and_on_the_largest(data, num_rows, width):
    row = st.lists(PROBABILITY, min_size=width, max_size=width)
    conditional = data.draw(st.lists(row, min_size=num_rows, max_size=num_rows))
    lengths = data.draw(st.lists(st.integers(0, width), min_size=num_rows, max_size=num_rows))
    survival = torch.tensor(conditional).cumprod(dim=1)
    ranking = rank(survival, torch.tensor(lengths))
    drafted = torch.arange(1, width + 1) <= torch.tensor(lengths)[:, None]
    for budget in range(int(ranking.num_candidates) + 1):
        taken = ranking.lengths(torch.tensor(budget))
        assert int(taken.sum()) == budget
        assert bool((taken <= torch.tensor(lengths)).all())
        is_taken = torch.arange(1, width + 1) <= taken[:, None]
        left = survival[drafted & ~is_taken]
        if budget and left.numel():
            assert survival[is_taken].min() >= left.max()
