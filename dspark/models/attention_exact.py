"""Attention whose result is bitwise the same in any pass: every sum is a sum of integers.

Floating-point sums depend on their order, and kernels choose the order by shape, padding and
thread count. Here both factors of every product are first rounded to integers on a power-of-two
grid, few enough bits that float64 holds every partial sum exactly. Exact sums have no order, so
any matrix product kernel returns the same bits. All other steps are single IEEE operations (or
maxima), which vector and scalar code compute alike; the exponential is built from such steps.

Bits: scores multiply 22-bit integers over head_dim <= 512 (22+22+9 = 53). Weights have 28 bits
and values two halves of 12, over at most 2**13 keys (28+12+13 = 53). The result differs from the
float32 formula by about 2**-22 of the largest operand, the size of float32's own rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from dspark.models.layout import AttentionGroup

_OPERAND_BITS = 22
_WEIGHT_BITS = 28
_HALF_BITS = 12
MAX_KEYS = 1 << 13
MAX_HEAD_DIM = 1 << 9
_LOG2_E = 1.4426950408889634
_LN2_POWERS = tuple(0.6931471805599453**n for n in range(14))
_EXP2_COEFFICIENTS = tuple(
    _LN2_POWERS[n] / factorial
    for n, factorial in enumerate(
        (1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800, 39916800, 479001600, 6227020800)
    )
)


def attend_exact(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    group: AttentionGroup,
    window: int | None,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Outputs [R, H, Q, D] in the query's dtype.

    Args:
        query: [R, H, Q, D].
        keys: [R, Hkv, C, D], possibly a view.
        values: [R, Hkv, C, D].
        group: gives the mask.
        window: sliding window of the layer, or None.
        scale: of the scores.
        softcap: soft cap of the scores, or None.
        sinks: [H] or None.

    Raises:
        ValueError: the context or the head is too long for exact sums.
    """
    num_rows, num_heads, num_queries, head_dim = query.shape
    num_kv_heads, num_keys = keys.shape[1], keys.shape[2]
    if num_keys > MAX_KEYS or head_dim > MAX_HEAD_DIM:
        raise ValueError(
            f"numerics=invariant sums exactly over at most {MAX_KEYS} tokens of context and heads of "
            f"{MAX_HEAD_DIM}, got {num_keys} and {head_dim}; use numerics=fast"
        )
    grouped = (num_rows, num_kv_heads, -1, head_dim)
    seen = group.visible(window)  # [R, 1, Q, C]
    q_int, q_unit = _to_integers(query.double())
    k_int, k_unit = _to_integers(keys.double())
    products = q_int.reshape(grouped) @ k_int.transpose(-1, -2)  # exact
    scores = products.view(num_rows, num_heads, num_queries, num_keys)
    repeat = num_heads // num_kv_heads
    k_unit = k_unit.transpose(-1, -2).repeat_interleave(repeat, 1)  # [R, H, 1, C]
    scores = scores * q_unit * k_unit * scale
    if softcap is not None:
        scores = softcap * _tanh(scores / softcap)
    scores = scores.masked_fill(~seen, -torch.inf)
    top = scores.amax(-1, keepdim=True)
    if sinks is not None:
        sink = sinks.double().view(1, -1, 1, 1)
        top = torch.maximum(top, sink)
    weights = _exp(scores - top)  # in [0, 1]
    total = _round(weights, _WEIGHT_BITS).sum(-1, keepdim=True)  # exact
    if sinks is not None:
        total = total + _round(_exp(sink - top), _WEIGHT_BITS)

    # values share one grid a query: the largest unit among the keys it sees
    v_int, v_unit = _to_integers(values.double(), 2 * _HALF_BITS - 1)
    v_unit = v_unit.transpose(-1, -2).repeat_interleave(repeat, 1).expand_as(scores)
    grid = v_unit.masked_fill(~seen, 0.0).amax(-1, keepdim=True)
    weights = _round(weights * (v_unit / grid), _WEIGHT_BITS).reshape(num_rows, num_kv_heads, -1, num_keys)
    high = torch.round(v_int * 2.0**-_HALF_BITS)
    low = v_int - high * 2.0**_HALF_BITS
    mixed = (weights @ high) * 2.0**_HALF_BITS + weights @ low  # two exact products
    mixed = mixed.view(num_rows, num_heads, num_queries, -1)
    return (mixed * grid / total).to(query.dtype)


def _to_integers(x: Tensor, bits: int = _OPERAND_BITS) -> tuple[Tensor, Tensor]:
    """Integers of at most ``bits`` bits and the power-of-two unit [..., 1] of each last-axis vector."""
    largest = x.abs().amax(-1, keepdim=True)
    exponent = torch.frexp(largest).exponent  # |x| < 2**exponent
    unit = _power_of_two(exponent - bits)
    return torch.round(x / unit), unit


def _power_of_two(exponent: Tensor) -> Tensor:
    """Float64 2**exponent from its bits; library powers need not be exact."""
    return ((exponent.long() + 1023) << 52).view(torch.float64)


def _round(x: Tensor, bits: int) -> Tensor:
    """Integers: ``x`` in units of 2**-bits."""
    return torch.round(x * 2.0**bits)


def _exp(x: Tensor) -> Tensor:
    """e**x for x <= 0 from single IEEE operations, within 1e-14; 0 below 2**-60."""
    y = (x * _LOG2_E).clamp(min=-60.0)
    whole = torch.round(y)
    fraction = y - whole
    result = torch.full_like(fraction, _EXP2_COEFFICIENTS[-1])
    for coefficient in reversed(_EXP2_COEFFICIENTS[:-1]):
        result = result.mul_(fraction).add_(coefficient)
    scaled = result * _power_of_two(whole)
    return scaled.masked_fill_(y <= -60.0, 0.0)


def _tanh(x: Tensor) -> Tensor:
    """tanh from the same exponential: sign(x) (1 - t) / (1 + t) with t = exp(-2|x|)."""
    t = _exp(x.abs() * -2.0)
    return torch.sign(x) * (1.0 - t) / (1.0 + t)
