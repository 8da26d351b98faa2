"""ConstantCost: the cost model of Leviathan et al. and the speed-ups that it implies."""

import pytest
import torch

from dspark.cost.constant import ConstantCost


def _times(cost: ConstantCost, depths: list[int], rows: int = 1):
    depth = torch.tensor(depths)
    rows_ = torch.tensor(rows)
    return cost.step_time_s(
        decode_rows=rows_, tokens=rows_ * (1 + depth), context_tokens=rows_ * 100, draft_tokens=depth
    )


def test_every_part_is_charged_once():
    cost = ConstantCost(draft_s_per_token=0.5, target_s=2.0, overhead_s=0.25)
    times = _times(cost, [0, 1, 4])
    assert times.draft_s.tolist() == [0.0, 0.5, 2.0]
    assert times.target_s.tolist() == [2.0, 2.0, 2.0]
    assert times.overhead_s.tolist() == [0.25, 0.25, 0.25]
    assert times.total_s.tolist() == [2.25, 2.75, 4.25]


def test_rows_tokens_and_context_are_free():
    cost = ConstantCost(draft_s_per_token=0.5, target_s=2.0)
    assert torch.equal(_times(cost, [3], rows=1).total_s, _times(cost, [3], rows=512).total_s)


def test_the_answer_has_the_shape_of_the_query():
    times = ConstantCost(draft_s_per_token=0.5, target_s=2.0).step_time_s(
        decode_rows=torch.arange(1, 4)[:, None],
        tokens=torch.arange(1, 4)[:, None],
        context_tokens=torch.tensor(0),
        draft_tokens=torch.arange(5),
    )
    assert times.draft_s.shape == times.target_s.shape == times.overhead_s.shape == (3, 5)


@pytest.mark.parametrize(
    ("alpha", "depth", "c", "speed_up"),
    [
        # Table 1 (c = 0) and the expected column of Table 4 of arXiv 2211.17192, to its printed digits
        *[(0.6, 2, 0.0, 1.96), (0.7, 3, 0.0, 2.53), (0.8, 2, 0.0, 2.44), (0.8, 5, 0.0, 3.69)],
        *[(0.9, 2, 0.0, 2.71), (0.9, 10, 0.0, 6.86)],
        *[(0.75, 7, 0.02, 3.157), (0.82, 7, 0.11, 2.497), (0.53, 5, 0.02, 1.891)],
    ],
)
def test_speed_ups_of_leviathan(alpha, depth, c, speed_up):
    cost = ConstantCost(draft_s_per_token=c * 3.0, target_s=3.0)
    plain, speculative = _times(cost, [0, depth]).total_s.tolist()
    tokens = (1 - alpha ** (depth + 1)) / (1 - alpha)
    assert tokens / speculative * plain == pytest.approx(speed_up, abs=0.006)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"draft_s_per_token": 0.1, "target_s": 0.0}, "target_s"),
        ({"draft_s_per_token": 0.1, "target_s": float("nan")}, "target_s"),
        ({"draft_s_per_token": -0.1, "target_s": 1.0}, "draft_s_per_token"),
        ({"draft_s_per_token": 0.1, "target_s": 1.0, "overhead_s": -1.0}, "overhead_s"),
    ],
)
def test_impossible_seconds_are_refused(fields, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        ConstantCost(**fields)
