"""LinearCost: each coefficient is charged where it belongs, and nothing outside the fit."""

import dataclasses

import pytest
import torch

from dspark.cost.linear import LinearCost

ZERO = {field.name: 0.0 for field in dataclasses.fields(LinearCost)}


def _times(cost: LinearCost, *, rows: int, tokens: int, context: int, depth: int):
    return cost.step_time_s(
        decode_rows=torch.tensor(rows),
        tokens=torch.tensor(tokens),
        context_tokens=torch.tensor(context),
        draft_tokens=torch.tensor(depth),
    )


def _parts(cost: LinearCost, **sizes: int) -> tuple[float, float, float]:
    times = _times(cost, **sizes)
    return times.draft_s.item(), times.target_s.item(), times.overhead_s.item()


@pytest.mark.parametrize(
    ("coefficient", "draft_s", "target_s", "overhead_s"),
    [
        # 3 rows, 15 tokens, 700 cached tokens, depth 4, and a target that takes 10 s otherwise
        ("target_fixed_s", 0, 10, 0),
        ("target_kv_s", 0, 10 + 700, 0),
        ("target_token_s", 0, 10 + 15, 0),
        ("target_row_s", 0, 10 + 3, 0),
        ("target_speculating_s", 0, 10 + 1, 0),
        ("draft_fixed_s", 1, 10, 0),
        ("draft_kv_s", 700, 10, 0),
        ("draft_row_s", 3, 10, 0),
        ("draft_depth_s", 4, 10, 0),
        ("draft_target_share", 10, 10, 0),
        ("overhead_s", 0, 10, 1),
        ("speculating_overhead_share", 0, 10, 10),
    ],
)
def test_each_coefficient_alone(coefficient, draft_s, target_s, overhead_s):
    only = ZERO | {coefficient: 1.0}
    only["target_fixed_s"] = 10.0
    parts = _parts(LinearCost(**only), rows=3, tokens=15, context=700, depth=4)
    assert parts == pytest.approx((draft_s, target_s, overhead_s))


def test_a_plain_step_pays_nothing_for_speculation():
    ones = LinearCost(**dict.fromkeys(ZERO, 1.0))
    draft_s, target_s, overhead_s = _parts(ones, rows=3, tokens=3, context=700, depth=0)
    assert (draft_s, target_s, overhead_s) == (0.0, 1 + 700 + 3 + 3, 1.0)


def test_a_broadcast_query_equals_its_single_queries():
    cost = LinearCost(
        target_fixed_s=1.0, target_kv_s=2e-3, target_token_s=0.1, draft_fixed_s=0.3, draft_depth_s=0.2
    )
    rows, depths = torch.tensor([1, 2, 8])[:, None], torch.arange(4)
    grid = cost.step_time_s(
        decode_rows=rows, tokens=rows * (1 + depths), context_tokens=rows * 50, draft_tokens=depths
    )
    assert grid.total_s.shape == (3, 4)
    for i, row in enumerate((1, 2, 8)):
        for depth in range(4):
            single = _times(cost, rows=row, tokens=row * (1 + depth), context=row * 50, depth=depth)
            assert grid.total_s[i, depth].item() == single.total_s.item()
            assert grid.overhead_s[i, depth].item() == 0.0


def test_queries_outside_the_fit_are_refused_not_clamped():
    # a row of 100 cached tokens costs 0.1 + 0.2 - 0.5 = -0.2 s, so 10 s are used up at 50 rows
    cost = LinearCost(target_fixed_s=10.0, target_kv_s=1e-3, target_token_s=0.2, target_row_s=-0.5)
    assert cost.min_context_tokens == pytest.approx((0.5 - 0.2) / 1e-3)
    *_, last = (_parts(cost, rows=n, tokens=n, context=100 * n, depth=0)[1] for n in (1, 49))
    assert last == pytest.approx(10 - 49 * 0.2)
    with pytest.raises(ValueError, match=r"60 rows over 6000 cached tokens.*from 300 cached tokens a row"):
        _times(cost, rows=60, tokens=60, context=6000, depth=0)


@pytest.mark.parametrize(
    ("row_s", "kv_s", "expected"), [(0.0, 0.0, 0.0), (-0.1, 1e-3, 0.0), (-0.3, 0.0, float("inf"))]
)
def test_where_the_fit_begins(row_s, kv_s, expected):
    cost = LinearCost(target_fixed_s=1.0, target_kv_s=kv_s, target_token_s=0.2, target_row_s=row_s)
    assert cost.min_context_tokens == expected


@pytest.mark.parametrize("name", sorted(ZERO))
def test_coefficients_must_be_finite(name):
    with pytest.raises(ValueError, match=f"^{name} must be finite, got nan"):
        LinearCost(**(ZERO | {"target_fixed_s": 1.0, name: float("nan")}))


def test_a_target_without_any_cost_is_refused():
    with pytest.raises(ValueError, match="all target_"):
        LinearCost(**ZERO)
