"""The roofline against arithmetic done by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from dspark.config.build import build_cost
from dspark.config.schema import Component
from dspark.cost.hardware import DEVICES, Device
from dspark.cost.named_shapes import SHAPES
from dspark.cost.pass_size import PassSize
from dspark.cost.roofline import Roofline, roofline_cost

CONTEXT = 1024
QWEN3_8B_ON_H200 = Roofline(
    target=SHAPES["qwen3_8b"], device=DEVICES["h200"], dtype="bfloat16", kv_dtype="bfloat16"
)


def _target_s(roofline: Roofline, rows: int, tokens: int, context: int) -> float:
    times = roofline.step_time_s(
        decode_rows=torch.tensor(rows),
        tokens=torch.tensor(tokens),
        context_tokens=torch.tensor(rows * context),
        draft_tokens=torch.tensor(0),
    )
    assert times.draft_s.item() == times.overhead_s.item() == 0
    return times.target_s.item()


class TestQwen3OnH200:
    """36 layers, hidden 4096, 32 query and 8 key/value heads of 128, MLP 12288, vocabulary 151936.

    Matrices of a layer: q 4096 x 4096, k and v 4096 x 1024 each, output 4096 x 4096: 41 943 040; MLP
    3 x 4096 x 12288 = 150 994 944; together 192 937 984, times 36 is 6 945 767 424. Head:
    151936 x 4096 = 622 329 856. Multiplied a token: 7 568 097 280. Norms are 36 x (2 x 4096 + 2 x 128)
    + 4096 = 308 224 more to read.

    Weights in bfloat16: 2 x 7 568 405 504 = 15.137 GB, over 4.8 TB/s 3.153 ms. Cache of a token:
    2 x 8 x 128 x 36 x 2 = 147 456 bytes, of a row of 1024 and its new token 151.1 MB, 31.5 us.
    FLOPs of a token: 2 x 7 568 097 280 = 15.136 G, and 4 x 32 x 128 x 36 x 1025 = 0.605 G of attention:
    15.741 G, over 989 TFLOP/s 15.92 us.
    """

    @pytest.mark.parametrize(
        ("batch", "worked_ms"),
        [
            (1, 3.1534 + 0.0315),
            (64, 3.1534 + 64 * 0.031488),  # 5.169; its 1.0074 TFLOP take 1.019 ms only
        ],
    )
    def test_decode_is_bound_by_memory(self, batch: int, worked_ms: float) -> None:
        assert _target_s(QWEN3_8B_ON_H200, batch, batch, CONTEXT) * 1e3 == pytest.approx(worked_ms, rel=0.01)

    @pytest.mark.parametrize("batch", [1, 64])
    def test_to_the_byte_and_the_flop(self, batch: int) -> None:
        size = PassSize.of(rows=batch, tokens=batch, context_tokens=batch * CONTEXT)
        cost = QWEN3_8B_ON_H200.pass_cost(size)
        weights = 2 * (6_945_767_424 + 622_329_856 + 308_224 + batch * 4096)  # and an embedding a token
        assert cost.bytes.item() == weights + batch * 1025 * 147_456
        assert cost.flops.item() == batch * (2 * 7_568_097_280 + 4 * 32 * 128 * 36 * 1025)
        assert cost.memory_s.item() == pytest.approx(cost.bytes.item() / 4.8e12)
        assert cost.compute_s.item() == pytest.approx(cost.flops.item() / 989e12)
        assert cost.seconds.item() == cost.memory_s.item()
        assert cost.intensity.item() == pytest.approx(cost.flops.item() / cost.bytes.item())

    def test_a_large_pass_is_bound_by_arithmetic(self) -> None:
        # 64 rows of 9 tokens see 1029 each on average: 15.136 + 4 x 32 x 128 x 36 x 1029 = 15.743 GFLOP
        worked_s = 576 * (2 * 7_568_097_280 + 4 * 32 * 128 * 36 * 1029) / 989e12
        assert worked_s == pytest.approx(9.169e-3, rel=1e-3)
        assert _target_s(QWEN3_8B_ON_H200, 64, 576, CONTEXT) == pytest.approx(worked_s)

    def test_the_optimal_pass_is_where_both_times_meet(self) -> None:
        # t (15.136 G + 0.59 M (1024 + (t + 1) / 2)) / 989 T = (15.137 G + 151 M + 147456 t + 8192 t) / 4.8 T:
        # about 206.04 x 15.288 / 15.8 = 199 and a little for the tokens' own entries
        knee = QWEN3_8B_ON_H200.knee_tokens(rows=1, context=CONTEXT)
        assert 197 <= knee <= 203
        sizes = [PassSize.of(rows=1, tokens=t, context_tokens=CONTEXT) for t in (knee, knee + 1)]
        before, after = (QWEN3_8B_ON_H200.pass_cost(size) for size in sizes)
        assert before.compute_s <= before.memory_s
        assert after.compute_s > after.memory_s

    def test_a_larger_cache_gives_arithmetic_more_time(self) -> None:
        knees = [QWEN3_8B_ON_H200.knee_tokens(rows=rows, context=CONTEXT) for rows in (1, 16, 64)]
        assert knees == sorted(knees)
        # 64 rows: memory 5.17 ms, 15.74 GFLOP a token over 989 TFLOP/s: 5.169 ms / 15.92 us = 325, and
        # the entries of these tokens, 64 rows of 5: 325 x 147456 / 4.8 T = 10 us
        assert knees[-1] == pytest.approx(325, rel=0.01)

    def test_without_context_the_knee_is_the_ridge_times_half_the_bytes_of_a_weight(self) -> None:
        # 2 FLOPs and 2 bytes a weight: 206.04 tokens, but for entries written and attention to themselves
        assert QWEN3_8B_ON_H200.knee_tokens() == pytest.approx(206, abs=3)
        halved = replace(QWEN3_8B_ON_H200, dtype="float8", kv_dtype="float8")
        # 8 bits: half the bytes, twice the FLOP/s: 1979 / 4.8 = 412 FLOP a byte, 2 FLOPs and 1 byte a weight
        assert halved.knee_tokens() == pytest.approx(206, abs=3)


class TestStepTime:
    def test_a_draft_is_a_pass_of_the_draft_model_a_token(self) -> None:
        alone = Roofline(
            target=SHAPES["smollm2"], device=DEVICES["h200"], dtype="bfloat16", kv_dtype="bfloat16"
        )
        both = replace(QWEN3_8B_ON_H200, draft=SHAPES["smollm2"], overhead_s=1e-4)
        times = both.step_time_s(
            decode_rows=torch.tensor(4),
            tokens=torch.tensor(16),
            context_tokens=torch.tensor(4 * CONTEXT),
            draft_tokens=torch.tensor(3),
        )
        # memory bound, so linear in the context: three passes at 1024, 1025 and 1026 tokens a row
        worked_s = sum(_target_s(alone, 4, 4, CONTEXT + k) for k in range(3))
        assert times.draft_s.item() == pytest.approx(worked_s, rel=1e-9)
        assert times.overhead_s.item() == 1e-4
        assert times.target_s.item() == _target_s(QWEN3_8B_ON_H200, 4, 16, CONTEXT)
        assert times.total_s.item() == pytest.approx(worked_s + 1e-4 + times.target_s.item())

    def test_arguments_broadcast_and_depth_0_drafts_nothing(self) -> None:
        both = replace(QWEN3_8B_ON_H200, draft=SHAPES["smollm2"])
        rows, depth = torch.tensor([[1], [8]]), torch.arange(4)
        times = both.step_time_s(
            decode_rows=rows, tokens=rows * (1 + depth), context_tokens=rows * 100, draft_tokens=depth
        )
        assert times.total_s.shape == (2, 4)
        assert times.total_s.dtype == torch.float64
        assert times.draft_s[:, 0].tolist() == [0, 0]
        assert (times.total_s.diff(dim=1) > 0).all()

    def test_a_pass_of_prompt_chunks_alone(self) -> None:
        # no decode rows: one row of 4096 tokens with nothing cached, compute bound
        size = PassSize.of(rows=1, tokens=4096, context_tokens=0)
        assert _target_s(QWEN3_8B_ON_H200, 0, 4096, 0) == QWEN3_8B_ON_H200.pass_cost(size).compute_s.item()

    def test_efficiencies_and_devices_scale_the_roof(self) -> None:
        plain = _target_s(QWEN3_8B_ON_H200, 1, 1, CONTEXT)
        assert _target_s(replace(QWEN3_8B_ON_H200, mbu=0.8), 1, 1, CONTEXT) == pytest.approx(plain / 0.8)
        assert _target_s(replace(QWEN3_8B_ON_H200, mfu=0.5), 1, 1, CONTEXT) == plain  # memory bound
        busy = _target_s(QWEN3_8B_ON_H200, 1, 4096, 0)
        assert _target_s(replace(QWEN3_8B_ON_H200, mfu=0.5), 1, 4096, 0) == pytest.approx(2 * busy)
        assert _target_s(replace(QWEN3_8B_ON_H200, num_devices=4), 1, 1, CONTEXT) == pytest.approx(plain / 4)

    def test_drafted_tokens_of_experts_cost_before_the_knee(self) -> None:
        flash = roofline_cost("deepseek_v4_flash", "h200", dtype="float8", num_devices=4)
        seconds = [_target_s(flash, 1, tokens, CONTEXT) for tokens in (1, 5)]
        # 43 layers read 6 experts for a token, and 256 (1 - (1 - 6/256)^5) = 28.63 for five
        expert = 3 * 4096 * 2048
        more_s = 43 * (256 * (1 - (250 / 256) ** 5) - 6) * expert / (4 * 4.8e12)
        assert seconds[1] - seconds[0] == pytest.approx(more_s, rel=0.01)
        assert seconds[1] > 2 * seconds[0]

    def test_a_hybrid_model_pays_for_its_state_at_any_context(self) -> None:
        hybrid = roofline_cost("qwen3_5_27b", "h200")
        near, far = (
            hybrid.pass_cost(PassSize.of(rows=8, tokens=8, context_tokens=8 * context)).bytes.item()
            for context in (0, 10_000)
        )
        # the 16 full layers alone grow: 2 x 4 heads x 256 values of 2 bytes a token
        assert far - near == 8 * 10_000 * 16 * 2 * 4 * 256 * 2
        weights = hybrid.target.weight_bytes(torch.tensor(8.0, dtype=torch.float64), 2).item()
        # 48 x 48 heads x 128 x 128 of float32, three inputs of 10240 channels, in and out; and 8 new entries
        state = 48 * 2 * (48 * 128 * 128 * 4 + 3 * 10_240 * 2)
        assert near - weights == 8 * (state + 16 * 2 * 4 * 256 * 2)

    def test_a_step_costs_at_least_what_a_smaller_one_does(self) -> None:
        tokens = torch.arange(1, 600)
        for name in SHAPES:
            roofline = roofline_cost(name, "h100")
            seconds = roofline.step_time_s(
                decode_rows=torch.tensor(1),
                tokens=tokens,
                context_tokens=torch.tensor(5000),
                draft_tokens=torch.tensor(0),
            ).target_s
            assert (seconds.diff() > 0).all(), name


def test_the_knee_of_a_pass_that_is_compute_bound_at_once_is_0() -> None:
    slow = Device(
        name="slow", peak_flops={"bfloat16": 1e9}, memory_bandwidth=1e12, memory_bytes=1e12, source="none"
    )
    assert replace(QWEN3_8B_ON_H200, device=slow).knee_tokens() == 0


class TestConfiguration:
    def test_the_cost_group_builds_it(self) -> None:
        settings = {"target": "qwen3_8b", "hardware": "h200", "draft": "smollm2", "mfu": 0.5}
        made = build_cost(Component(target="dspark.cost.roofline.roofline_cost", settings=settings))
        assert made == replace(QWEN3_8B_ON_H200, draft=SHAPES["smollm2"], mfu=0.5)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"target": "qwen_8b"}, "cost: no model shape is named 'qwen_8b': did you mean 'qwen3_8b'"),
            ({"hardware": "h20"}, "cost: no hardware is named 'h20': did you mean 'h200'"),
            ({"dtype": "float16"}, "cost: dtype must be one of float32, bfloat16, float8, got 'float16'"),
            ({"kv_dtype": "int4"}, "cost: kv_dtype must be one of"),
            (
                {"hardware": "a100", "dtype": "float8"},
                "cost: A100 80GB SXM has no peak FLOP/s for dtype float8",
            ),
            ({"mfu": 0.0}, r"cost: mfu must be in \(0, 1\], got 0"),
            ({"mbu": 1.5}, r"cost: mbu must be in \(0, 1\], got 1.5"),
            ({"num_devices": 0}, "cost: num_devices must be >= 1, got 0"),
            ({"overhead_s": -1.0}, "cost: overhead_s must be >= 0 and finite, got -1"),
        ],
    )
    def test_mistakes_are_one_line(self, change: dict[str, Any], message: str) -> None:
        settings = {"target": "qwen3_8b", "hardware": "h200"} | change
        with pytest.raises(ValueError, match=message) as caught:
            build_cost(Component(target="dspark.cost.roofline.roofline_cost", settings=settings))
        assert "\n" not in str(caught.value)
